static void run_lrn_forward(worker *w, const void *p) {
    (void)w, (void)p;
}

static i64 workspace_lrn_forward(i32 threads, const void *p) {
    (void)threads, (void)p;
    return 0;
}

static void run_lrn_backward(worker *w, const void *p) {
    (void)w, (void)p;
}

static i64 workspace_lrn_backward(i32 threads, const void *p) {
    (void)threads, (void)p;
    return 0;
}

