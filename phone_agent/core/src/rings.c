/* Carries rings out: receives the next pieces while the last is added, and never blocks in one of several. Who waits naps: a
 * phone's core is better spent or left cold than polling, and what arrives meanwhile is read at one go. */
#include "runtime.h"
#include "system.h"

typedef i32 send_call(const void *data, i32 count, void *type, i32 rank, i32 tag, void *comm, void **request);
typedef i32 receive_call(void *into, i32 count, void *type, i32 rank, i32 tag, void *comm, void **request);
typedef i32 test_call(void **request, i32 *flag, void *status);

enum { PATIENCE = 100000000 }; /* nanoseconds of naps before the caller may look at its signals */

/* The first thing that goes wrong is what is told. */
static void heed(allreduce *all, i32 code) {
    if (!all->error) all->error = code;
}

static void send(allreduce *all, ring *r, letter *l) {
    send_call *call = (send_call *)all->send;
    heed(all, call(l->data, (i32)l->bytes, all->datatype, r->right_rank, r->tag, all->comm, &l->request));
    r->sent_bytes += l->bytes;
    r->sent++;
}

static void receive(allreduce *all, ring *r, letter *l) {
    receive_call *call = (receive_call *)all->receive;
    heed(all, call(l->data, (i32)l->bytes, all->datatype, r->left_rank, r->tag, all->comm, &l->request));
    r->posted++;
}

static i32 is_over(allreduce *all, letter *l) {
    if (all->error) return 0; /* what could not be started has no request */
    i64 status[8];            /* larger than any MPI's */
    i32 flag = 0;
    heed(all, ((test_call *)all->test)(&l->request, &flag, status));
    return flag && !all->error;
}

static void *lend(allreduce *all, ring *r) {
    r->slots++;
    return all->free[--all->free_count];
}

static void release(allreduce *all, ring *r, letter *l) {
    if (!l->slot) return;
    r->slots--;
    if (l->kept < 0) all->free[all->free_count++] = l->slot;
}

static i32 is_exact(const allreduce *all) { return all->number == FP32; }

static letter in_the_buffer(const allreduce *all, const hop *h) {
    return (letter){.data = all->buffer + h->start, .bytes = h->bytes, .kept = -1};
}

/* Asked for only where somebody wants to know. */
static i64 clock_of(const allreduce *all) { return all->spans ? now() : 0; }

static void note(allreduce *all, i32 doing, i64 started, i64 ended) {
    if (all->spans) all->spans[all->span_count++] = (span){.started = started, .ended = ended, .doing = doing};
}

static void run(allreduce *all, i32 kind, void *op) {
    step only = {.kind = kind, .op = op};
    run_steps(all->pool, &only, 1, 0);
}

/* What to send for a piece; what arrived, which may lie there already, is added. */
static void write_letter(allreduce *all, const hop *h, void *arrived, void *to, i32 settle) {
    encode op = {.values = all->buffer + h->start, .arrived = arrived, .to = to, .count = h->count, .number = all->number};
    op.residual = all->residual ? all->residual + h->start : 0;
    op.settle = settle;
    run(all, ENCODE, &op);
}

static void read_letter(allreduce *all, const hop *h, const void *from, i32 accumulate) {
    decode op = {.from = from, .values = all->buffer + h->start, .count = h->count, .number = all->number};
    op.accumulate = accumulate;
    run(all, DECODE, &op);
}

/* One of those a ring starts with. There is a slot for it: sends that have left gave theirs back before anything was posted. */
static void begin(allreduce *all, ring *r, const hop *h, letter *l) {
    *l = in_the_buffer(all, h);
    if (is_exact(all)) return;
    if (r->gathers) {
        r->slots++;
        l->data = l->slot = all->kept[h->kept];
    } else {
        l->data = l->slot = lend(all, r);
        write_letter(all, h, 0, l->data, 0);
    }
}

static void dispatch(allreduce *all, ring *r) {
    while (!all->error && r->sent - r->gone < RINGS_AHEAD && r->sent < r->ready) {
        letter *l = &r->leaving[r->sent];
        if (r->sent < r->first_count) begin(all, r, &r->first[r->sent], l);
        send(all, r, l);
    }
}

static void post(allreduce *all, ring *r) {
    while (!all->error && r->posted < r->hop_count && r->posted - r->handled < RINGS_AHEAD) {
        const hop *h = &r->hops[r->posted];
        letter *l = &r->arriving[r->posted % RINGS_AHEAD];
        *l = in_the_buffer(all, h);
        if (h->errand == ERRAND_TAKE && is_exact(all)) {
            /* The k-th piece taken over is the k-th sent: it may still be on its way from where this would be written. */
            if (!r->gathers && r->gone <= r->taken) return;
            r->taken++;
        } else {
            if (r->slots == r->room) return;
            l->data = l->slot = lend(all, r);
        }
        receive(all, r, l);
    }
}

/* What came is passed on from where it lies: in the buffer where that is what is sent, else in its slot. */
static void pass_on(allreduce *all, ring *r, const hop *h, letter *l) {
    if (h->kept >= 0) {
        l->kept = h->kept;
        all->kept[h->kept] = l->slot;
    }
    if (h->forward) r->leaving[r->ready++] = *l;
    else release(all, r, l);
}

static void handle(allreduce *all, ring *r, const hop *h, letter *l) {
    i64 started = clock_of(all);
    if (h->errand == ERRAND_TAKE && is_exact(all)) { /* it arrived in its place */
        pass_on(all, r, h, l);
        return;
    }
    if (h->errand == ERRAND_TAKE) {
        read_letter(all, h, l->data, 0);
    } else if (is_exact(all) || !h->forward) {
        read_letter(all, h, l->data, 1);
        release(all, r, l);
        *l = in_the_buffer(all, h);
    } else {
        write_letter(all, h, l->data, l->data, h->errand == ERRAND_FINISH);
    }
    note(all, DOING_REDUCE, started, clock_of(all));
    pass_on(all, r, h, l);
}

/* Does what can be done without waiting; whether that was anything. */
static i32 advance(allreduce *all, ring *r) {
    i64 before = r->gone + r->handled;
    for (; r->gone < r->sent && is_over(all, &r->leaving[r->gone]); r->gone++) release(all, r, &r->leaving[r->gone]);
    dispatch(all, r);
    post(all, r);
    letter *l = &r->arriving[r->handled % RINGS_AHEAD];
    if (r->handled < r->posted && is_over(all, l)) {
        handle(all, r, &r->hops[r->handled], l);
        r->handled++;
        dispatch(all, r);
    }
    return r->gone + r->handled > before;
}

static i32 is_done(const ring *r) { return r->handled == r->hop_count && r->gone == r->ready; }

static i32 may_begin(const allreduce *all, const stage *s) {
    return (s->after < 0 || all->stages[s->after].over) && (s->after_too < 0 || all->stages[s->after_too].over);
}

static i32 advance_stage(allreduce *all, stage *s) {
    i32 moved = 0, over = 1;
    for (ring *r = all->rings + s->first; r < all->rings + s->first + s->count; r++) {
        if (!is_done(r)) moved |= advance(all, r);
        over &= is_done(r);
    }
    s->over = over;
    return moved | over;
}

/* The first stage that is not over, or null. */
static const stage *unfinished(const allreduce *all) {
    for (const stage *s = all->stages; s < all->stages + all->stage_count; s++)
        if (!s->over) return s;
    return 0;
}

static i32 waits_for(const allreduce *all, const stage *s) {
    for (const ring *r = all->rings + s->first; r < all->rings + s->first + s->count; r++)
        if (r->handled < r->hop_count) return DOING_RECEIVE;
    return DOING_SEND;
}

void core_rings_begin(allreduce *all) {
    for (ring *r = all->rings; r < all->rings + all->ring_count; r++) {
        r->ready = r->first_count;
        r->sent = r->gone = r->posted = r->taken = r->handled = r->slots = r->sent_bytes = 0;
    }
    for (i32 i = 0; i < all->stage_count; i++) all->stages[i].over = 0;
    for (i64 i = 0; i < all->slot_count; i++) /* the lowest is lent first: memory that nobody needs is never touched */
        all->free[i] = (char *)all->slots + (all->slot_count - 1 - i) * all->slot_bytes;
    all->free_count = all->slot_count;
    all->span_count = all->error = 0;
    all->nap = all->first_nap;
    all->napped = 0;
    all->quiet_since = clock_of(all);
}

i32 core_rings(allreduce *all) {
    i64 patience = PATIENCE;
    for (const stage *waiting; (waiting = unfinished(all));) {
        if (all->spans && all->span_count + all->ring_count + 1 > all->span_room) return RINGS_AGAIN;
        i64 woke = clock_of(all);
        i32 doing = waits_for(all, waiting), moved = 0;
        for (stage *s = all->stages; s < all->stages + all->stage_count; s++)
            if (!s->over && may_begin(all, s)) moved |= advance_stage(all, s);
        if (all->error) return RINGS_FAILED;
        if (moved) {
            if (all->napped) note(all, doing, all->quiet_since, woke);
            all->quiet_since = clock_of(all);
            all->nap = all->first_nap;
            all->napped = 0;
            continue;
        }
        if (patience < 0) return RINGS_AGAIN;
        nap(all->nap);
        patience -= all->nap;
        all->napped += all->nap;
        all->nap = MIN(2 * all->nap, all->longest_nap);
    }
    return RINGS_DONE;
}
