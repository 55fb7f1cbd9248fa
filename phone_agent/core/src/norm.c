static void run_norm_forward(worker *w, const void *p) {
    (void)w, (void)p;
}

static i64 workspace_norm_forward(i32 threads, const void *p) {
    (void)threads, (void)p;
    return 0;
}

static void run_norm_fold(worker *w, const void *p) {
    (void)w, (void)p;
}

static i64 workspace_norm_fold(i32 threads, const void *p) {
    (void)threads, (void)p;
    return 0;
}

static void run_norm_backward(worker *w, const void *p) {
    (void)w, (void)p;
}

static i64 workspace_norm_backward(i32 threads, const void *p) {
    (void)threads, (void)p;
    return 0;
}

static void run_join_forward(worker *w, const void *p) {
    (void)w, (void)p;
}

static i64 workspace_join_forward(i32 threads, const void *p) {
    (void)threads, (void)p;
    return 0;
}

static void run_join_backward(worker *w, const void *p) {
    (void)w, (void)p;
}

static i64 workspace_join_backward(i32 threads, const void *p) {
    (void)threads, (void)p;
    return 0;
}

