/*
 * For test programs that use GIO in several threads, under ThreadSanitizer: GLib is not built with
 * it and its locks are futexes, so what its libraries guard with them looks unguarded. Calls that
 * these libraries make (strlen, memcpy, free ...) are not judged; the project's own code is.
 */

#if defined(__SANITIZE_THREAD__)

const char *__tsan_default_suppressions(void);

const char *__tsan_default_suppressions(void) {
    return "called_from_lib:libgio-2.0.so\n"
           "called_from_lib:libgobject-2.0.so\n"
           "called_from_lib:libglib-2.0.so\n"
           "race:dl_deallocate_tls\n"; /* the loader frees thread-local variables of plugins */
}

#else

typedef int tsan_glib_is_not_needed; /* ISO C wants a declaration */

#endif
