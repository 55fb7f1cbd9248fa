static void run_convert(worker *w, const void *p) {
    (void)w, (void)p;
}

static i64 workspace_convert(i32 threads, const void *p) {
    (void)threads, (void)p;
    return 0;
}

static void run_reduce(worker *w, const void *p) {
    (void)w, (void)p;
}

static i64 workspace_reduce(i32 threads, const void *p) {
    (void)threads, (void)p;
    return 0;
}

