static void run_sgd(worker *w, const void *p) {
    (void)w, (void)p;
}

static i64 workspace_sgd(i32 threads, const void *p) {
    (void)threads, (void)p;
    return 0;
}

