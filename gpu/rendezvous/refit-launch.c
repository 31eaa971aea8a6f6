/*
 * Reads the launcher's variables by one table. Launchers nest (mpirun inside an allocation of
 * Slurm, torchrun started by srun) and the inner one counts, so the rows go from the inside to the
 * outside and each has a variable that only it sets for its own processes.
 */

#include "gpu/rendezvous/refit-launch.h"

#include "model/base/refit-error.h"

#include <string.h>

typedef struct {
    const char *name;
    const char *mark; /* set: this launcher started the process */
    const char *rank, *local_rank, *world;
    const char *local_world; /* ranks of this node; NULL: not stated */
} Launcher;

static const Launcher launchers[] = {
    {"torchrun", "RANK", "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"},
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"mpirun", "MPI_LOCALRANKID", "PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE", "MPI_LOCALNRANKS"},
    /* A batch script has SLURM_PROCID, too, but is no step. */
    {"srun", "SLURM_STEP_ID", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS", NULL},
};

/* Set without a launcher's mark, one of these means that somebody forgot the rest. */
static const char *const strays[] = {"WORLD_SIZE", "LOCAL_RANK", "OMPI_COMM_WORLD_SIZE",
                                     "OMPI_COMM_WORLD_LOCAL_RANK", NULL};

typedef struct {
    RefitLaunchLookup lookup;
    gpointer data;
} Environment;

/* Empty counts as not set, as launch scripts often leave it. */
static const char *get(const Environment *environment, const char *name) {
    const char *value = environment->lookup(environment->data, name);

    return value != NULL && value[0] != '\0' ? value : NULL;
}

void refit_launch_clear(RefitLaunch *launch) {
    g_clear_pointer(&launch->address, g_free);
    g_clear_pointer(&launch->token, g_free);
}

static gboolean fail(GError **error, const char *format, ...) G_GNUC_PRINTF(2, 3);
static gboolean fail(GError **error, const char *format, ...) {
    va_list arguments;

    va_start(arguments, format);
    if (error != NULL)
        *error = g_error_new_valist(REFIT_ERROR, REFIT_ERROR_INVALID, format, arguments);
    va_end(arguments);
    return FALSE;
}

static gboolean read_number(const Environment *environment, const char *launcher, const char *name,
                            guint64 limit, guint *number_out, GError **error) {
    const char *value = get(environment, name);
    guint64 number;

    if (value == NULL)
        return fail(error, "%s is not set, though other variables of %s are", name, launcher);
    if (!g_ascii_string_to_unsigned(value, 10, 0, limit, &number, NULL)) {
        g_autofree char *excerpt = refit_error_excerpt(value);

        return fail(error, "%s is \"%s\", which is no number from 0 to %" G_GUINT64_FORMAT, name,
                    excerpt, limit);
    }
    *number_out = (guint)number;
    return TRUE;
}

/* The first host of a list such as "rack[2-3]n[01-16,20],spare". Free with g_free. */
static char *first_host(const char *list) {
    GString *host = g_string_new(NULL);

    while (*list != '\0' && *list != ',') {
        if (*list != '[') {
            g_string_append_c(host, *list++);
            continue;
        }
        for (list++; g_ascii_isalnum(*list); list++)
            g_string_append_c(host, *list);
        list += strcspn(list, "]");
        list += *list == ']';
    }
    return g_string_free(host, FALSE);
}

static const Launcher *find_launcher(const Environment *environment) {
    for (guint i = 0; i < G_N_ELEMENTS(launchers); i++)
        if (get(environment, launchers[i].mark) != NULL)
            return &launchers[i];
    return NULL;
}

const char *refit_launch_find(RefitLaunchLookup lookup, gpointer data, guint *world_out) {
    const Environment environment = {lookup, data};
    const Launcher *launcher = find_launcher(&environment);

    *world_out = 0;
    if (launcher == NULL)
        return NULL;
    (void)read_number(&environment, launcher->name, launcher->world, G_MAXUINT32, world_out, NULL);
    return launcher->name;
}

static gboolean read_place(const Environment *environment, const Launcher *launcher,
                           RefitLaunch *launch, gboolean *one_node_out, GError **error) {
    const char *nodes = get(environment, "SLURM_STEP_NUM_NODES");
    guint local_world = 0;

    if (!read_number(environment, launcher->name, launcher->world, G_MAXUINT32, &launch->world,
                     error) ||
        !read_number(environment, launcher->name, launcher->rank, G_MAXUINT32, &launch->rank,
                     error) ||
        !read_number(environment, launcher->name, launcher->local_rank, G_MAXUINT32,
                     &launch->local_rank, error))
        return FALSE;
    if (launch->rank >= launch->world)
        return fail(error, "%s is %u, which must be below %s, %u", launcher->rank, launch->rank,
                    launcher->world, launch->world);
    if (launch->local_rank > launch->rank)
        return fail(error, "%s is %u, above %s, %u", launcher->local_rank, launch->local_rank,
                    launcher->rank, launch->rank);
    *one_node_out = launcher->local_world == NULL && g_strcmp0(nodes, "1") == 0;
    if (launcher->local_world == NULL || get(environment, launcher->local_world) == NULL)
        return TRUE;
    if (!read_number(environment, launcher->name, launcher->local_world, G_MAXUINT32, &local_world,
                     error))
        return FALSE;
    if (local_world > launch->world)
        return fail(error, "%s is %u, above %s, %u", launcher->local_world, local_world,
                    launcher->world, launch->world);
    if (launch->local_rank >= local_world)
        return fail(error, "%s is %u, which must be below %s, %u", launcher->local_rank,
                    launch->local_rank, launcher->local_world, local_world);
    *one_node_out = local_world == launch->world;
    return TRUE;
}

/* Scripts set the variables of torchrun by hand under srun; then both must say the same, unless
 * torchrun itself was there, which numbers ranks as it likes. */
static gboolean check_slurm(const Environment *environment, const Launcher *launcher,
                            const RefitLaunch *launch, GError **error) {
    const Launcher *slurm = &launchers[G_N_ELEMENTS(launchers) - 1];
    const char *given = get(environment, "WORLD_SIZE");
    guint rank, world;

    if (launcher == slurm && given != NULL) {
        if (!read_number(environment, launchers[0].name, "WORLD_SIZE", G_MAXUINT32, &world, error))
            return FALSE;
        return world == launch->world ||
               fail(error, "WORLD_SIZE is %u, but %s is %u", world, slurm->world, launch->world);
    }
    if (launcher != &launchers[0] || get(environment, slurm->mark) == NULL ||
        get(environment, "TORCHELASTIC_RUN_ID") != NULL)
        return TRUE;
    if (!read_number(environment, slurm->name, slurm->world, G_MAXUINT32, &world, error) ||
        !read_number(environment, slurm->name, slurm->rank, G_MAXUINT32, &rank, error))
        return FALSE;
    if (world != launch->world)
        return fail(error, "%s is %u, but %s is %u", launcher->world, launch->world, slurm->world,
                    world);
    return rank == launch->rank ||
           fail(error, "%s is %u, but %s is %u", launcher->rank, launch->rank, slurm->rank, rank);
}

static gboolean read_address(const Environment *environment, const Launcher *launcher,
                             gboolean one_node, RefitLaunch *launch, GError **error) {
    const char *address = get(environment, "MASTER_ADDR");
    const char *nodes = get(environment, "SLURM_STEP_NODELIST");
    gboolean slurm = g_str_equal(launcher->name, "srun");

    if (address != NULL)
        launch->address = g_strdup(address);
    else if (one_node)
        launch->address = g_strdup("127.0.0.1");
    else if (slurm && nodes != NULL)
        launch->address = first_host(nodes);
    else
        return fail(error,
                    "MASTER_ADDR is not set: %s does not say where rank 0 is; set it to the "
                    "address of the node of rank 0, on all ranks",
                    launcher->name);
    return TRUE;
}

static gboolean read_port(const Environment *environment, const Launcher *launcher,
                          RefitLaunch *launch, GError **error) {
    enum { SLURM_FIRST_PORT = 20000, SLURM_PORTS = 10000, SLURM_STEPS = 16 };
    /* torchrun keeps a store of its own at the port that it announces. */
    gboolean taken = g_strcmp0(get(environment, "TORCHELASTIC_USE_AGENT_STORE"), "True") == 0;
    const char *name = get(environment, "REFIT_PORT") != NULL ? "REFIT_PORT" : "MASTER_PORT";
    guint job, step;

    if (get(environment, name) == NULL && g_str_equal(launcher->name, "srun")) {
        if (!read_number(environment, launcher->name, "SLURM_JOB_ID", G_MAXUINT32, &job, error) ||
            !read_number(environment, launcher->name, "SLURM_STEP_ID", G_MAXUINT32, &step, error))
            return FALSE;
        launch->port = (guint)(SLURM_FIRST_PORT +
                               ((guint64)job * SLURM_STEPS + step % SLURM_STEPS) % SLURM_PORTS);
        return TRUE;
    }
    if (get(environment, name) == NULL)
        return fail(error,
                    "neither REFIT_PORT nor MASTER_PORT is set: %s names no port for rank 0; set "
                    "one that is free there, on all ranks",
                    launcher->name);
    if (!read_number(environment, launcher->name, name, G_MAXUINT16, &launch->port, error))
        return FALSE;
    if (taken && g_str_equal(name, "MASTER_PORT"))
        launch->port++;
    return (launch->port > 0 && launch->port <= G_MAXUINT16) ||
           fail(error, "%s leads to port %u; ports are 1 to 65535", name, launch->port);
}

gboolean refit_launch_read(RefitLaunchLookup lookup, gpointer data, RefitLaunch *launch_out,
                           GError **error) {
    const Environment environment = {lookup, data};
    const Launcher *launcher = find_launcher(&environment);
    g_auto(RefitLaunch) launch = {0};
    const char *token = get(&environment, "REFIT_TOKEN");
    gboolean one_node = FALSE;

    if (launcher == NULL) {
        for (guint i = 0; strays[i] != NULL; i++)
            if (get(&environment, strays[i]) != NULL)
                return fail(error, "%s is set, but not the rank that goes with it", strays[i]);
        return fail(error, "no rank is stated: start with --ranks, or under torchrun, srun or "
                           "mpirun");
    }
    launch.launcher = launcher->name;
    if (!read_place(&environment, launcher, &launch, &one_node, error) ||
        !check_slurm(&environment, launcher, &launch, error) ||
        !read_address(&environment, launcher, one_node, &launch, error) ||
        !read_port(&environment, launcher, &launch, error))
        return FALSE;
    if (token == NULL)
        return fail(error,
                    "REFIT_TOKEN is not set: give all ranks of the job the same secret text, "
                    "so that they admit no others");
    launch.token = g_strdup(token);
    *launch_out = launch;
    launch.address = NULL;
    launch.token = NULL;
    return TRUE;
}
