/*
 * What launchers say: each launcher's variables, launchers inside each other, where rank 0 listens,
 * and variables that are missing, no numbers or contradict each other.
 */

#include "gpu/rendezvous/refit-launch.h"
#include "model/base/refit-error.h"

#include <string.h>

#define TOKEN "REFIT_TOKEN=0123456789abcdef"
enum { MAX_VARIABLES = 16 };

/* `data`: texts "NAME=value", ended by NULL. */
static const char *look_up(gpointer data, const char *name) {
    const char *const *variables = data;
    gsize length = strlen(name);

    for (; *variables != NULL; variables++)
        if (strncmp(*variables, name, length) == 0 && (*variables)[length] == '=')
            return *variables + length + 1;
    return NULL;
}

typedef struct {
    const char *variables[MAX_VARIABLES];
    const char *launcher;
    guint rank, local_rank, world;
    const char *address;
    guint port;
} Good;

static void check_good(const Good *rows, guint n) {
    for (guint i = 0; i < n; i++) {
        g_auto(RefitLaunch) launch = {0};
        g_autoptr(GError) error = NULL;
        guint world;

        g_assert_true(refit_launch_read(look_up, (gpointer)rows[i].variables, &launch, &error));
        g_assert_no_error(error);
        g_assert_cmpstr(launch.launcher, ==, rows[i].launcher);
        g_assert_cmpuint(launch.rank, ==, rows[i].rank);
        g_assert_cmpuint(launch.local_rank, ==, rows[i].local_rank);
        g_assert_cmpuint(launch.world, ==, rows[i].world);
        g_assert_cmpstr(launch.address, ==, rows[i].address);
        g_assert_cmpuint(launch.port, ==, rows[i].port);
        g_assert_cmpstr(launch.token, ==, "0123456789abcdef");
        g_assert_cmpstr(refit_launch_find(look_up, (gpointer)rows[i].variables, &world), ==,
                        rows[i].launcher);
        g_assert_cmpuint(world, ==, rows[i].world);
    }
}

static void each_launcher_is_understood(void) {
    static const Good rows[] = {
        {{"RANK=9", "LOCAL_RANK=1", "WORLD_SIZE=16", "LOCAL_WORLD_SIZE=8", "MASTER_ADDR=node0",
          "MASTER_PORT=29500", TOKEN},
         "torchrun",
         9,
         1,
         16,
         "node0",
         29500},
        /* torchrun's own store sits at its port. */
        {{"RANK=0", "LOCAL_RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=node0", "MASTER_PORT=29500",
          "TORCHELASTIC_USE_AGENT_STORE=True", TOKEN},
         "torchrun",
         0,
         0,
         2,
         "node0",
         29501},
        {{"OMPI_COMM_WORLD_RANK=5", "OMPI_COMM_WORLD_LOCAL_RANK=1", "OMPI_COMM_WORLD_SIZE=8",
          "MASTER_ADDR=10.0.0.1", "REFIT_PORT=7000", "MASTER_PORT=8000", TOKEN},
         "mpirun",
         5,
         1,
         8,
         "10.0.0.1",
         7000},
        {{"PMI_RANK=3", "MPI_LOCALRANKID=3", "PMI_SIZE=4", "MPI_LOCALNRANKS=4", "MASTER_PORT=9000",
          TOKEN},
         "mpirun",
         3,
         3,
         4,
         "127.0.0.1",
         9000},
        {{"SLURM_STEP_ID=0", "SLURM_PROCID=12", "SLURM_LOCALID=4", "SLURM_NTASKS=16",
          "SLURM_JOB_ID=1234", "SLURM_STEP_NODELIST=dgx[03-04]", "SLURM_STEP_NUM_NODES=2", TOKEN},
         "srun",
         12,
         4,
         16,
         "dgx03",
         20000 + 1234 * 16 % 10000},
        {{"SLURM_STEP_ID=3", "SLURM_PROCID=1", "SLURM_LOCALID=1", "SLURM_NTASKS=2",
          "SLURM_JOB_ID=4294967295", "SLURM_STEP_NODELIST=dgx03", "SLURM_STEP_NUM_NODES=1", TOKEN},
         "srun",
         1,
         1,
         2,
         "127.0.0.1",
         20000 + (4294967295ULL * 16 + 3) % 10000},
    };

    check_good(rows, G_N_ELEMENTS(rows));
}

static void the_inner_launcher_counts(void) {
    static const Good rows[] = {
        /* mpirun in a batch script, whose own variables are no step. */
        {{"SLURM_PROCID=0", "SLURM_NTASKS=1", "OMPI_COMM_WORLD_RANK=1",
          "OMPI_COMM_WORLD_LOCAL_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_SIZE=2",
          "MASTER_PORT=9000", TOKEN},
         "mpirun",
         1,
         1,
         2,
         "127.0.0.1",
         9000},
        /* One torchrun per node, started by srun, numbering as it likes. */
        {{"SLURM_STEP_ID=0", "SLURM_PROCID=1", "SLURM_LOCALID=0", "SLURM_NTASKS=2", "RANK=0",
          "LOCAL_RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=n2", "MASTER_PORT=29500",
          "TORCHELASTIC_RUN_ID=x", TOKEN},
         "torchrun",
         0,
         0,
         2,
         "n2",
         29500},
        /* Scripts that state the world for PyTorch, too. */
        {{"SLURM_STEP_ID=0", "SLURM_PROCID=1", "SLURM_LOCALID=1", "SLURM_NTASKS=2", "WORLD_SIZE=2",
          "MASTER_ADDR=n1", "MASTER_PORT=29500", TOKEN},
         "srun",
         1,
         1,
         2,
         "n1",
         29500},
        /* srun with an MPI of its own. */
        {{"SLURM_STEP_ID=0", "SLURM_PROCID=1", "SLURM_LOCALID=1", "SLURM_NTASKS=2", "PMI_RANK=1",
          "PMI_SIZE=2", "MASTER_ADDR=n1", "MASTER_PORT=29500", TOKEN},
         "srun",
         1,
         1,
         2,
         "n1",
         29500},
    };

    check_good(rows, G_N_ELEMENTS(rows));
}

static void the_first_host_of_a_list_is_found(void) {
    static const char *const rows[][2] = {
        {"n1", "n1"},
        {"n1,n2", "n1"},
        {"n[01-16,20],m1", "n01"},
        {"n[7]", "n7"},
        {"rack[2-3]n[04-05]", "rack2n04"},
        {"gpu[1-2]-ib.cluster,x", "gpu1-ib.cluster"},
    };

    for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_autofree char *list = g_strconcat("SLURM_STEP_NODELIST=", rows[i][0], NULL);
        const char *variables[] = {"SLURM_STEP_ID=0",
                                   "SLURM_PROCID=0",
                                   "SLURM_LOCALID=0",
                                   "SLURM_NTASKS=2",
                                   "SLURM_JOB_ID=1",
                                   list,
                                   TOKEN,
                                   NULL};
        g_auto(RefitLaunch) launch = {0};
        g_autoptr(GError) error = NULL;

        g_assert_true(refit_launch_read(look_up, variables, &launch, &error));
        g_assert_no_error(error);
        g_assert_cmpstr(launch.address, ==, rows[i][1]);
    }
}

static void what_is_wrong_is_named(void) {
    static const struct {
        const char *variables[MAX_VARIABLES];
        const char *says;
    } rows[] = {
        {{NULL}, "no rank is stated"},
        {{"RANK=", TOKEN}, "no rank is stated"}, /* empty is not set */
        {{"SLURM_PROCID=0", "SLURM_NTASKS=4"}, "no rank is stated"},
        {{"WORLD_SIZE=4"}, "WORLD_SIZE is set, but not the rank that goes with it"},
        {{"LOCAL_RANK=4"}, "LOCAL_RANK is set, but not"},
        {{"RANK=0", "LOCAL_RANK=0"}, "WORLD_SIZE is not set, though other variables of torchrun"},
        {{"RANK=0", "WORLD_SIZE=2"}, "LOCAL_RANK is not set"},
        {{"OMPI_COMM_WORLD_RANK=0"}, "OMPI_COMM_WORLD_SIZE is not set"},
        {{"MPI_LOCALRANKID=0", "PMI_SIZE=2"}, "PMI_RANK is not set"},
        {{"SLURM_STEP_ID=0", "SLURM_NTASKS=2"}, "SLURM_PROCID is not set"},
        {{"RANK=a\nb", "LOCAL_RANK=0", "WORLD_SIZE=2"}, "RANK is \"a?b\", which is no number"},
        {{"RANK=-1", "LOCAL_RANK=0", "WORLD_SIZE=2"}, "RANK is \"-1\", which is no number"},
        {{"RANK=99999999999", "LOCAL_RANK=0", "WORLD_SIZE=2"}, "RANK is \"99999999999\""},
        {{"RANK=2", "LOCAL_RANK=0", "WORLD_SIZE=2"},
         "RANK is 2, which must be below WORLD_SIZE, 2"},
        {{"RANK=0", "LOCAL_RANK=1", "WORLD_SIZE=2"}, "LOCAL_RANK is 1, above RANK, 0"},
        {{"RANK=1", "LOCAL_RANK=1", "WORLD_SIZE=2", "LOCAL_WORLD_SIZE=1"},
         "LOCAL_RANK is 1, which must be below LOCAL_WORLD_SIZE, 1"},
        {{"RANK=1", "LOCAL_RANK=1", "WORLD_SIZE=2", "LOCAL_WORLD_SIZE=4"},
         "LOCAL_WORLD_SIZE is 4, above WORLD_SIZE, 2"},
        {{"RANK=1", "LOCAL_RANK=1", "WORLD_SIZE=2", "SLURM_STEP_ID=0", "SLURM_PROCID=0",
          "SLURM_NTASKS=2"},
         "RANK is 1, but SLURM_PROCID is 0"},
        {{"RANK=1", "LOCAL_RANK=1", "WORLD_SIZE=2", "SLURM_STEP_ID=0", "SLURM_PROCID=1",
          "SLURM_NTASKS=4"},
         "WORLD_SIZE is 2, but SLURM_NTASKS is 4"},
        {{"SLURM_STEP_ID=0", "SLURM_PROCID=1", "SLURM_LOCALID=1", "SLURM_NTASKS=2",
          "WORLD_SIZE=16"},
         "WORLD_SIZE is 16, but SLURM_NTASKS is 2"},
        {{"RANK=1", "LOCAL_RANK=1", "WORLD_SIZE=2", "MASTER_PORT=1"}, "MASTER_ADDR is not set"},
        {{"RANK=1", "LOCAL_RANK=1", "WORLD_SIZE=2", "LOCAL_WORLD_SIZE=2"},
         "neither REFIT_PORT nor MASTER_PORT is set"},
        {{"RANK=1", "LOCAL_RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=a", "MASTER_PORT=65536"},
         "MASTER_PORT is \"65536\""},
        {{"RANK=1", "LOCAL_RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=a", "MASTER_PORT=65535",
          "TORCHELASTIC_USE_AGENT_STORE=True"},
         "MASTER_PORT leads to port 65536"},
        {{"RANK=1", "LOCAL_RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=a", "REFIT_PORT=0"},
         "REFIT_PORT leads to port 0"},
        {{"SLURM_STEP_ID=0", "SLURM_PROCID=1", "SLURM_LOCALID=1", "SLURM_NTASKS=2",
          "SLURM_STEP_NODELIST=n1"},
         "SLURM_JOB_ID is not set"},
        {{"RANK=1", "LOCAL_RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=a", "MASTER_PORT=1"},
         "REFIT_TOKEN is not set"},
    };

    for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_auto(RefitLaunch) launch = {0};
        g_autoptr(GError) error = NULL;

        g_assert_false(refit_launch_read(look_up, (gpointer)rows[i].variables, &launch, &error));
        g_assert_error(error, REFIT_ERROR, REFIT_ERROR_INVALID);
        if (!g_str_has_prefix(error->message, rows[i].says))
            g_error("row %u: \"%s\" does not begin with \"%s\"", i, error->message, rows[i].says);
        g_assert_null(launch.address); /* outputs only on success */
    }
}

static void a_world_that_cannot_be_read_is_none(void) {
    const char *variables[] = {"RANK=0", "WORLD_SIZE=many", NULL};
    const char *nothing[] = {NULL};
    guint world = 7;

    g_assert_cmpstr(refit_launch_find(look_up, variables, &world), ==, "torchrun");
    g_assert_cmpuint(world, ==, 0);
    g_assert_null(refit_launch_find(look_up, nothing, &world));
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/launch/each-launcher-is-understood", each_launcher_is_understood);
    g_test_add_func("/launch/the-inner-launcher-counts", the_inner_launcher_counts);
    g_test_add_func("/launch/the-first-host-of-a-list-is-found", the_first_host_of_a_list_is_found);
    g_test_add_func("/launch/what-is-wrong-is-named", what_is_wrong_is_named);
    g_test_add_func("/launch/a-world-that-cannot-be-read-is-none",
                    a_world_that_cannot_be_read_is_none);
    return g_test_run();
}
