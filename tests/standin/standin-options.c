/*
 * What the environment asks of the stand-in: options, read once, rates of kernels, and faults. A
 * fault is planned as FUNCTION:DEVICE:N[:ACTION], several with commas between them; DEVICE is * for
 * any. It counts the calls of that function for that device, relaxed, for counting must not order
 * anything. What a stream comes to counts like a call, by the name of the kernel or as `group@`
 * with the number of ranks.
 */

#include "standin-private.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MAX_FAULTS 16
#define MAX_RATES 16

typedef enum {
    FAULT_ERROR,  /* that one call fails */
    FAULT_ERRORS, /* that call and all later ones of the function */
    FAULT_STALL,  /* from then on the device moves no NCCL message */
    FAULT_LOST,   /* the device is lost: all its calls fail and its groups end */
    FAULT_SLOW,   /* each operation of the device takes VALUE us more */
    FAULT_PAUSE,  /* that call takes VALUE ms more */
    FAULT_HANG,   /* a kernel: it never ends, nor does its stream go on */
    FAULT_KILL    /* the process ends at once */
} FaultAction;

static const struct {
    const char *name;
    gboolean has_value;
} actions[] = {
    [FAULT_ERROR] = {"error", FALSE}, [FAULT_ERRORS] = {"errors", FALSE},
    [FAULT_STALL] = {"stall", FALSE}, [FAULT_LOST] = {"lost", FALSE},
    [FAULT_SLOW] = {"slow", TRUE},    [FAULT_PAUSE] = {"pause", TRUE},
    [FAULT_HANG] = {"hang", FALSE},   [FAULT_KILL] = {"kill", FALSE},
};

typedef struct {
    char *text; /* as planned */
    char function[64];
    int device; /* -1: any */
    guint64 nth;
    FaultAction action;
    guint64 value;
    _Atomic guint64 n_calls;
} Fault;

static StandinOptions options;
static Fault faults[MAX_FAULTS];
static guint n_faults;
static struct {
    char kernel[64];
    guint64 bytes_per_s;
} rates[MAX_RATES];
static guint n_rates;
static struct {
    _Atomic bool lost, stalled, hung;
    _Atomic guint64 slow_us;
} conditions[STANDIN_MAX_DEVICES];

static guint64 number(const char *text, const char *what, const char *whole) {
    char *end = NULL;
    errno = 0;
    const guint64 value = strtoull(text, &end, 0);
    if (!g_ascii_isdigit(*text) || *end != '\0' || errno != 0) {
        standin_die("%s '%s' in '%s' is not a number", what, text, whole);
    }
    return value;
}

static guint64 from_environment(const char *name, guint64 otherwise) {
    const char *text = getenv(name);
    return text != NULL && *text != '\0' ? number(text, name, text) : otherwise;
}

static void parse_action(const char *text, Fault *fault) {
    const size_t length = strcspn(text, "=");
    for (guint i = 0; i < G_N_ELEMENTS(actions); i++) {
        if (strlen(actions[i].name) == length && strncmp(actions[i].name, text, length) == 0 &&
            actions[i].has_value == (text[length] == '=')) {
            fault->action = (FaultAction)i;
            fault->value = actions[i].has_value ? number(text + length + 1, "value", text) : 0;
            return;
        }
    }
    standin_die("REFIT_STANDIN_FAULT: no action '%s'", text);
}

static void parse_fault(const char *text, Fault *fault) {
    g_auto(GStrv) parts = g_strsplit(text, ":", -1);
    const guint n = g_strv_length(parts);
    if (n < 3 || n > 4 || strlen(parts[0]) >= sizeof fault->function) {
        standin_die("REFIT_STANDIN_FAULT: '%s' is not FUNCTION:DEVICE:N[:ACTION]", text);
    }
    fault->text = g_strdup(text);
    g_strlcpy(fault->function, parts[0], sizeof fault->function);
    fault->device = strcmp(parts[1], "*") == 0 ? -1 : (int)number(parts[1], "device", text);
    fault->nth = number(parts[2], "N", text);
    if (n == 4) {
        parse_action(parts[3], fault);
    }
}

static void parse_faults(const char *text) {
    g_auto(GStrv) parts = g_strsplit(text, ",", -1);
    for (guint i = 0; parts[i] != NULL; i++) {
        if (n_faults == MAX_FAULTS) {
            standin_die("REFIT_STANDIN_FAULT: more than %d faults", MAX_FAULTS);
        }
        parse_fault(parts[i], &faults[n_faults++]);
    }
}

static void parse_rates(const char *text) {
    g_auto(GStrv) parts = g_strsplit(text, ",", -1);
    for (guint i = 0; parts[i] != NULL; i++) {
        g_auto(GStrv) sides = g_strsplit(parts[i], "=", 2);
        if (g_strv_length(sides) != 2 || strlen(sides[0]) >= sizeof rates->kernel) {
            standin_die("REFIT_STANDIN_KERNEL_RATES: '%s' is not KERNEL=RATE", parts[i]);
        }
        if (n_rates == MAX_RATES) {
            standin_die("REFIT_STANDIN_KERNEL_RATES: more than %d kernels", MAX_RATES);
        }
        g_strlcpy(rates[n_rates].kernel, sides[0], sizeof rates->kernel);
        rates[n_rates++].bytes_per_s = number(sides[1], "rate", text);
    }
}

guint64 standin_kernel_rate(const char *name) {
    standin_options();
    for (guint i = 0; i < n_rates; i++) {
        if (strcmp(rates[i].kernel, name) == 0) {
            return rates[i].bytes_per_s;
        }
    }
    return 0;
}

static void exit_report(void) {
    guint64 bytes = 0;
    const guint blocks = standin_memory_leaks(&bytes);
    const guint streams = standin_stream_leaks();
    const guint events = standin_event_leaks();
    const guint comms = standin_comm_leaks();
    if (blocks + streams + events + comms > 0) {
        standin_die("left at exit: %u device blocks (%" G_GUINT64_FORMAT
                    " bytes), %u streams, %u events, %u communicators",
                    blocks, bytes, streams, events, comms);
    }
}

static void read_options(void) {
    const char *transport = getenv("REFIT_STANDIN_TRANSPORT");
    const char *fault = getenv("REFIT_STANDIN_FAULT");
    const char *rate = getenv("REFIT_STANDIN_KERNEL_RATES");

#if defined(__SANITIZE_THREAD__)
    /* GLib's own allocator hands memory from thread to thread with locks that the sanitizer cannot
     * see. */
    if (glib_check_version(2, 76, 0) != NULL &&
        g_strcmp0(getenv("G_SLICE"), "always-malloc") != 0) {
        standin_die("under ThreadSanitizer, set G_SLICE=always-malloc");
    }
#endif
    options = (StandinOptions){
        .devices = (int)MIN(from_environment("REFIT_STANDIN_DEVICES", 8), STANDIN_MAX_DEVICES),
        .host_devices = (int)MIN(from_environment("REFIT_STANDIN_HOST_DEVICES", 0), G_MAXINT),
        .channels = (guint)MIN(from_environment("REFIT_STANDIN_CHANNELS", 0), 64),
        .no_driver = from_environment("REFIT_STANDIN_NO_DRIVER", 0) != 0,
        .eager = from_environment("REFIT_STANDIN_EAGER", 0) != 0,
        .serial = from_environment("REFIT_STANDIN_SERIAL", 0) != 0,
        .leaks = from_environment("REFIT_STANDIN_LEAKS", 1) != 0,
        .tells_faults = from_environment("REFIT_STANDIN_FAULT_LOG", 0) != 0,
        .tcp = transport != NULL && strcmp(transport, "tcp") == 0,
        .sms = (guint)MIN(MAX(1, from_environment("REFIT_STANDIN_SMS", 132)), G_MAXINT),
        .plan_ops = (guint)from_environment("REFIT_STANDIN_PLAN_OPS", 0),
        .block_threads = (guint)MAX(1, from_environment("REFIT_STANDIN_BLOCK_THREADS", 1)),
        .jitter_us = from_environment("REFIT_STANDIN_JITTER_US", 0),
        .timeout_ms = from_environment("REFIT_STANDIN_TIMEOUT_MS", 10000),
        .channel_rate = from_environment("REFIT_STANDIN_CHANNEL_RATE", 0),
        .ring = MAX(256, from_environment("REFIT_STANDIN_RING", 16384)),
        .memory = from_environment("REFIT_STANDIN_MEMORY", (guint64)80 << 30),
        .span = from_environment("REFIT_STANDIN_SPAN", (guint64)1 << 35),
    };
    if (transport != NULL && !options.tcp && strcmp(transport, "memory") != 0) {
        standin_die("REFIT_STANDIN_TRANSPORT is '%s': use memory or tcp", transport);
    }
    if (fault != NULL && *fault != '\0') {
        parse_faults(fault);
    }
    if (rate != NULL && *rate != '\0') {
        parse_rates(rate);
    }
    if (options.leaks && atexit(exit_report) != 0) {
        standin_die("no room for a report at exit");
    }
}

const StandinOptions *standin_options(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_options);
    return &options;
}

void standin_jitter(void) {
    static _Thread_local guint64 state;
    const guint64 limit = standin_options()->jitter_us;

    if (limit == 0) {
        return;
    }
    if (state == 0) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        state = (guint64)(uintptr_t)&state ^ ((guint64)now.tv_nsec << 20) ^ 1;
    }
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    if (state >> 60 == 0) {
        g_usleep(state % limit);
    }
}

/* Without stdio, whose lock would order threads. */
static void tell(const Fault *fault) {
    char line[STANDIN_TEXT];
    const int n = g_snprintf(line, sizeof line, "stand-in: fault: %s\n", fault->text);
    if (write(STDERR_FILENO, line, (size_t)MIN(n, STANDIN_TEXT - 1)) < 0) {
        return; /* nobody listens */
    }
}

_Noreturn static void hang(int device) {
    atomic_store_explicit(&conditions[device].hung, true, memory_order_relaxed);
    for (;;) {
        pause(); /* until the process ends */
    }
}

static gboolean act(const Fault *fault, int device, gboolean in_kernel) {
    if (options.tells_faults) {
        tell(fault);
    }
    switch (fault->action) {
    case FAULT_STALL:
        atomic_store_explicit(&conditions[device].stalled, true, memory_order_relaxed);
        return FALSE;
    case FAULT_LOST:
        atomic_store_explicit(&conditions[device].lost, true, memory_order_relaxed);
        return TRUE;
    case FAULT_SLOW:
        atomic_store_explicit(&conditions[device].slow_us, fault->value, memory_order_relaxed);
        return FALSE;
    case FAULT_PAUSE:
        g_usleep(fault->value * 1000);
        return FALSE;
    case FAULT_HANG:
        if (!in_kernel) {
            standin_die("REFIT_STANDIN_FAULT: '%s': only kernels hang", fault->text);
        }
        hang(device);
    case FAULT_KILL:
        kill(getpid(), SIGKILL);
        return TRUE;
    case FAULT_ERROR:
    case FAULT_ERRORS:
        break;
    }
    return TRUE;
}

static gboolean count_and_act(const char *function, int device, gboolean in_kernel) {
    gboolean fails = FALSE;

    standin_options();
    for (guint i = 0; i < n_faults; i++) {
        Fault *fault = &faults[i];
        if ((fault->device >= 0 && fault->device != device) ||
            strcmp(fault->function, function) != 0) {
            continue;
        }
        const guint64 n = atomic_fetch_add_explicit(&fault->n_calls, 1, memory_order_relaxed) + 1;
        if (n == fault->nth || (n > fault->nth && fault->action == FAULT_ERRORS)) {
            fails |= act(fault, device, in_kernel);
        }
    }
    return fails;
}

gboolean standin_fault(const char *function, int device) {
    return count_and_act(function, device, FALSE);
}

gboolean standin_kernel_fault(const char *name, int device) {
    const gboolean fails = count_and_act(name, device, TRUE);
    if (fails) {
        atomic_store_explicit(&conditions[device].lost, true, memory_order_relaxed);
    }
    return fails;
}

gboolean standin_device_lost(int device) {
    return atomic_load_explicit(&conditions[device].lost, memory_order_relaxed);
}

gboolean standin_device_hung(int device) {
    return atomic_load_explicit(&conditions[device].hung, memory_order_relaxed);
}

gboolean standin_device_stalled(int device) {
    return atomic_load_explicit(&conditions[device].stalled, memory_order_relaxed);
}

void standin_device_slow(int device) {
    const guint64 us = atomic_load_explicit(&conditions[device].slow_us, memory_order_relaxed);
    if (us > 0) {
        g_usleep(us);
    }
}
