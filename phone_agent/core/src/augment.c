/* Images as bytes become what a network reads: cropped, perhaps flipped, normalised.
 *
 * (byte / 255 - mean) * inv_std is byte * scale + shift. Both are laid out as long as a row of the result, channel by
 * channel, so that a row is one plain multiply-add whatever the number of channels. */

typedef u8 bytes_vec __attribute__((ext_vector_type(LANES), aligned(1)));

INLINE i64 augment_row(const augment *op) { return (i64)op->out_w * op->channels; }
INLINE i64 augment_floats(const augment *op) { return ROUND_UP(augment_row(op), 16); }

static void lay_out(const augment *op, float *scale, float *shift) {
    for (i64 x = 0, i = 0; x < op->out_w; x++)
        for (i32 c = 0; c < op->channels; c++, i++) {
            scale[i] = op->inv_std[c] / 255;
            shift[i] = -op->mean[c] * op->inv_std[c];
        }
}

/* local = pixels left .. left + out_w of a row, perhaps from right to left; zero where there are none. */
INLINE void put_together(const augment *op, const u8 *row, i64 left, i32 flip, u8 *local, i32 channels) {
    for (i64 x = 0; x < op->out_w; x++) {
        i64 from = left + (flip ? op->out_w - 1 - x : x);
        i32 there = row && from >= 0 && from < op->in_w;
        for (i32 c = 0; c < channels; c++) local[x * channels + c] = there ? row[from * channels + c] : 0;
    }
}

/* Row y of the result, before normalisation: in the image itself where it lies there as it is, else put together. */
static const u8 *cropped_row(const augment *op, i64 image, i32 y, u8 *local) {
    const i32 *crop = op->crops + 3 * image;
    i64 from_y = (i64)crop[0] + y, left = crop[1], bytes = (i64)op->in_w * op->channels;
    i32 inside = from_y >= 0 && from_y < op->in_h, flip = crop[2];
    const u8 *row = inside ? op->images + (image * op->in_h + from_y) * bytes : 0;
    if (row && !flip && left >= 0 && left + op->out_w <= op->in_w) return row + left * op->channels;
    if (op->channels == 3) put_together(op, row, left, flip, local, 3);
    else put_together(op, row, left, flip, local, op->channels);
    return local;
}

static void normalise_row(const u8 *from, const float *scale, const float *shift, float *to, i64 count) {
    i64 i = 0;
    for (; i + LANES <= count; i += LANES) {
        vec v = __builtin_convertvector(*(const bytes_vec *)(from + i), vec);
        store(to + i, v * load(scale + i) + load(shift + i));
    }
    for (; i < count; i++) to[i] = (float)from[i] * scale[i] + shift[i];
}

static void run_augment(worker *w, const void *p) {
    const augment *op = p;
    float *scale = (float *)w->workspace, *shift = scale + augment_floats(op);
    u8 *local = (u8 *)(shift + augment_floats(op)) + w->index * ROUND_UP(augment_row(op), 64);
    if (w->index == 0) lay_out(op, scale, shift);
    meet(w);
    for (i64 tile; (tile = take(w)) < (i64)op->batch * op->out_h;) {
        const u8 *from = cropped_row(op, tile / op->out_h, (i32)(tile % op->out_h), local);
        normalise_row(from, scale, shift, op->out + tile * augment_row(op), augment_row(op));
    }
}

static i64 workspace_augment(i32 threads, const void *p) {
    const augment *op = p;
    return 2 * augment_floats(op) * (i64)sizeof(float) + threads * ROUND_UP(augment_row(op), 64);
}
