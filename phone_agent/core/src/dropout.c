static void run_dropout_forward(worker *w, const void *p) {
    (void)w, (void)p;
}

static i64 workspace_dropout_forward(i32 threads, const void *p) {
    (void)threads, (void)p;
    return 0;
}

static void run_dropout_backward(worker *w, const void *p) {
    (void)w, (void)p;
}

static i64 workspace_dropout_backward(i32 threads, const void *p) {
    (void)threads, (void)p;
    return 0;
}

