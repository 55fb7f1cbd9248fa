/* Ring allreduce over MPI point-to-point: receives the next chunks while the last one is reduced, and never blocks
 * in one of several rings. A waiting rank sleeps instead of polling: that keeps a phone's core cool or free, and
 * everything that arrives meanwhile is read at once. */
#include "thread_pool.h"
#include "syscalls.h"

typedef i32 send_call(const void *data, i32 count, void *type, i32 rank, i32 tag, void *comm, void **request);
typedef i32 receive_call(void *into, i32 count, void *type, i32 rank, i32 tag, void *comm, void **request);
typedef i32 test_call(void **request, i32 *flag, void *status);

enum { MAX_SLEEP_PER_CALL_NS = 100000000 }; /* then the caller can handle signals */

/* Keep the first error. */
static void check(allreduce *all, i32 code) {
    if (!all->error) all->error = code;
}

static void post_send(allreduce *all, ring *r, message *l) {
    send_call *call = (send_call *)all->send;
    check(all, call(l->data, (i32)l->bytes, all->datatype, r->right_rank, r->tag, all->comm, &l->request));
    r->bytes_sent += l->bytes;
    r->sends_posted++;
}

static void post_receive(allreduce *all, ring *r, message *l) {
    receive_call *call = (receive_call *)all->receive;
    check(all, call(l->data, (i32)l->bytes, all->datatype, r->left_rank, r->tag, all->comm, &l->request));
    r->receives_posted++;
}

static i32 is_complete(allreduce *all, message *l) {
    if (all->error) return 0; /* a request that could not be started does not exist */
    i64 status[8];            /* larger than the status of any MPI */
    i32 flag = 0;
    check(all, ((test_call *)all->test)(&l->request, &flag, status));
    return flag && !all->error;
}

static void *acquire_slot(allreduce *all, ring *r) {
    r->slots_held++;
    return all->free_slots[--all->free_count];
}

static void release_slot(allreduce *all, ring *r, message *l) {
    if (!l->slot) return;
    r->slots_held--;
    if (l->cache_index < 0) all->free_slots[all->free_count++] = l->slot;
}

static i32 is_fp32(const allreduce *all) { return all->dtype == FP32; }

static message message_in_buffer(const allreduce *all, const hop *h) {
    return (message){.data = all->buffer + h->start, .bytes = h->bytes, .cache_index = -1};
}

/* The clock is read only if tracing is on. */
static i64 trace_clock(const allreduce *all) { return all->spans ? monotonic_ns() : 0; }

static void trace_span(allreduce *all, i32 kind, i64 started, i64 ended) {
    if (all->spans) all->spans[all->span_count++] = (span){.started = started, .ended = ended, .kind = kind};
}

static void run_op(allreduce *all, i32 kind, void *op) {
    step only = {.kind = kind, .op = op};
    thread_pool_run(all->thread_pool, &only, 1, 0);
}

/* Encode a chunk to `to`, plus `received` if it is set, which may be the same memory. */
static void encode_chunk(allreduce *all, const hop *h, void *received, void *to, i32 write_back) {
    encode op = {
        .values = all->buffer + h->start, .received = received, .encoded = to, .count = h->count, .dtype = all->dtype};
    op.residual = all->residual ? all->residual + h->start : 0;
    op.write_back = write_back;
    run_op(all, ENCODE, &op);
}

static void decode_chunk(allreduce *all, const hop *h, const void *from, i32 accumulate) {
    decode op = {.encoded = from, .values = all->buffer + h->start, .count = h->count, .dtype = all->dtype};
    op.accumulate = accumulate;
    run_op(all, DECODE, &op);
}

/* Prepare one of the chunks that a ring starts with. A slot is available: completed sends have released theirs
 * before any receive was posted. */
static void prepare_initial_send(allreduce *all, ring *r, const hop *h, message *l) {
    *l = message_in_buffer(all, h);
    if (is_fp32(all)) return;
    if (r->is_allgather) {
        r->slots_held++;
        l->data = l->slot = all->cached_slots[h->cache_index];
    } else {
        l->data = l->slot = acquire_slot(all, r);
        encode_chunk(all, h, 0, l->data, 0);
    }
}

static void post_sends(allreduce *all, ring *r) {
    while (!all->error && r->sends_posted - r->sends_done < RING_MAX_IN_FLIGHT && r->sends_posted < r->sends_ready) {
        message *l = &r->sends[r->sends_posted];
        if (r->sends_posted < r->initial_count) prepare_initial_send(all, r, &r->initial[r->sends_posted], l);
        post_send(all, r, l);
    }
}

static void post_receives(allreduce *all, ring *r) {
    while (!all->error && r->receives_posted < r->hop_count &&
           r->receives_posted - r->receives_done < RING_MAX_IN_FLIGHT) {
        const hop *h = &r->hops[r->receives_posted];
        message *l = &r->receives[r->receives_posted % RING_MAX_IN_FLIGHT];
        *l = message_in_buffer(all, h);
        if (h->op == RING_OP_COPY && is_fp32(all)) {
            /* The k-th chunk received in place is the k-th chunk sent: that send may still read the memory that this
             * receive would write. */
            if (!r->is_allgather && r->sends_done <= r->receives_in_place) return;
            r->receives_in_place++;
        } else {
            if (r->slots_held == r->max_slots) return;
            l->data = l->slot = acquire_slot(all, r);
        }
        post_receive(all, r, l);
    }
}

/* Send a chunk on from where it is: from the buffer if that is what is sent, otherwise from its slot. */
static void forward_chunk(allreduce *all, ring *r, const hop *h, message *l) {
    if (h->cache_index >= 0) {
        l->cache_index = h->cache_index;
        all->cached_slots[h->cache_index] = l->slot;
    }
    if (h->forward) r->sends[r->sends_ready++] = *l;
    else release_slot(all, r, l);
}

static void handle_chunk(allreduce *all, ring *r, const hop *h, message *l) {
    i64 started = trace_clock(all);
    if (h->op == RING_OP_COPY && is_fp32(all)) { /* it was received in place */
        forward_chunk(all, r, h, l);
        return;
    }
    if (h->op == RING_OP_COPY) {
        decode_chunk(all, h, l->data, 0);
    } else if (is_fp32(all) || !h->forward) {
        decode_chunk(all, h, l->data, 1);
        release_slot(all, r, l);
        *l = message_in_buffer(all, h);
    } else {
        encode_chunk(all, h, l->data, l->data, h->op == RING_OP_REDUCE_FINAL);
    }
    trace_span(all, SPAN_REDUCE, started, trace_clock(all));
    forward_chunk(all, r, h, l);
}

/* Do everything that is possible without waiting; returns whether that was anything. */
static i32 progress_ring(allreduce *all, ring *r) {
    i64 before = r->sends_done + r->receives_done;
    for (; r->sends_done < r->sends_posted && is_complete(all, &r->sends[r->sends_done]); r->sends_done++)
        release_slot(all, r, &r->sends[r->sends_done]);
    post_sends(all, r);
    post_receives(all, r);
    message *l = &r->receives[r->receives_done % RING_MAX_IN_FLIGHT];
    if (r->receives_done < r->receives_posted && is_complete(all, l)) {
        handle_chunk(all, r, &r->hops[r->receives_done], l);
        r->receives_done++;
        post_sends(all, r);
    }
    return r->sends_done + r->receives_done > before;
}

static i32 ring_is_done(const ring *r) { return r->receives_done == r->hop_count && r->sends_done == r->sends_ready; }

static i32 stage_may_start(const allreduce *all, const stage *s) {
    return (s->depends_on < 0 || all->stages[s->depends_on].done) &&
           (s->also_depends_on < 0 || all->stages[s->also_depends_on].done);
}

static i32 progress_stage(allreduce *all, stage *s) {
    i32 progressed = 0, done = 1;
    for (ring *r = all->rings + s->first_ring; r < all->rings + s->first_ring + s->ring_count; r++) {
        if (!ring_is_done(r)) progressed |= progress_ring(all, r);
        done &= ring_is_done(r);
    }
    s->done = done;
    return progressed | done;
}

/* The first stage that is not done, or null. */
static const stage *first_unfinished_stage(const allreduce *all) {
    for (const stage *s = all->stages; s < all->stages + all->stage_count; s++)
        if (!s->done) return s;
    return 0;
}

static i32 waiting_kind(const allreduce *all, const stage *s) {
    for (const ring *r = all->rings + s->first_ring; r < all->rings + s->first_ring + s->ring_count; r++)
        if (r->receives_done < r->hop_count) return SPAN_RECEIVE;
    return SPAN_SEND;
}

void core_allreduce_reset(allreduce *all) {
    for (ring *r = all->rings; r < all->rings + all->ring_count; r++) {
        r->sends_ready = r->initial_count;
        r->sends_posted = r->sends_done = r->receives_posted = r->receives_in_place = r->receives_done = r->slots_held =
            r->bytes_sent = 0;
    }
    for (i32 i = 0; i < all->stage_count; i++) all->stages[i].done = 0;
    for (i64 i = 0; i < all->slot_count;
         i++) /* the lowest slot is used first, so that unused memory is never touched */
        all->free_slots[i] = (char *)all->slots + (all->slot_count - 1 - i) * all->slot_bytes;
    all->free_count = all->slot_count;
    all->span_count = all->error = 0;
    all->sleep_ns = all->min_sleep_ns;
    all->slept_ns = 0;
    all->idle_since = trace_clock(all);
}

i32 core_allreduce_run(allreduce *all) {
    i64 sleep_budget = MAX_SLEEP_PER_CALL_NS;
    for (const stage *waiting; (waiting = first_unfinished_stage(all));) {
        if (all->spans && all->span_count + all->ring_count + 1 > all->span_capacity) return RING_PENDING;
        i64 woke = trace_clock(all);
        i32 kind = waiting_kind(all, waiting), progressed = 0;
        for (stage *s = all->stages; s < all->stages + all->stage_count; s++)
            if (!s->done && stage_may_start(all, s)) progressed |= progress_stage(all, s);
        if (all->error) return RING_FAILED;
        if (progressed) {
            if (all->slept_ns) trace_span(all, kind, all->idle_since, woke);
            all->idle_since = trace_clock(all);
            all->sleep_ns = all->min_sleep_ns;
            all->slept_ns = 0;
            continue;
        }
        if (sleep_budget < 0) return RING_PENDING;
        sleep_for(all->sleep_ns);
        sleep_budget -= all->sleep_ns;
        all->slept_ns += all->sleep_ns;
        all->sleep_ns = MIN(2 * all->sleep_ns, all->max_sleep_ns);
    }
    return RING_DONE;
}
