#pragma once

/*
 * Launch: what the program that started this process says about its place in the job, in the
 * variables of torchrun, mpirun (Open MPI; MPICH and Intel MPI) and srun. docs/executor.md lists
 * them.
 */

#include <glib.h>

G_BEGIN_DECLS

typedef struct {
    const char *launcher; /* "torchrun", ...; static */
    guint rank, local_rank, world;
    char *address; /* where rank 0 listens */
    guint port;
    char *token;
} RefitLaunch;

void refit_launch_clear(RefitLaunch *launch);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(RefitLaunch, refit_launch_clear)

/* The value of a variable, or NULL; as from g_getenv(). */
typedef const char *(*RefitLaunchLookup)(gpointer data, const char *name);

/* Name of the launcher whose variables are there, and the world it states (0: none that can be
 * read); NULL without one. */
const char *refit_launch_find(RefitLaunchLookup lookup, gpointer data, guint *world_out);

/*
 * REFIT_ERROR_INVALID without a launcher; naming the variable when one is missing, is no number or
 * contradicts another.
 */
gboolean refit_launch_read(RefitLaunchLookup lookup, gpointer data, RefitLaunch *launch_out,
                           GError **error) G_GNUC_WARN_UNUSED_RESULT;

G_END_DECLS
