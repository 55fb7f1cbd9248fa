static void run_depthwise_forward(worker *w, const void *p) {
    (void)w, (void)p;
}

static i64 workspace_depthwise_forward(i32 threads, const void *p) {
    (void)threads, (void)p;
    return 0;
}

static void run_depthwise_backward_data(worker *w, const void *p) {
    (void)w, (void)p;
}

static i64 workspace_depthwise_backward_data(i32 threads, const void *p) {
    (void)threads, (void)p;
    return 0;
}

static void run_depthwise_backward_weights(worker *w, const void *p) {
    (void)w, (void)p;
}

static i64 workspace_depthwise_backward_weights(i32 threads, const void *p) {
    (void)threads, (void)p;
    return 0;
}

