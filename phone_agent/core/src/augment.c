static void run_augment(worker *w, const void *p) {
    (void)w, (void)p;
}

static i64 workspace_augment(i32 threads, const void *p) {
    (void)threads, (void)p;
    return 0;
}

