#pragma once

/*
 * Views: where the elements of logical tensors lie inside the physical parameters of a rank.
 *
 * Engines do not keep tensors as the hub names them. They fuse (q, k, v of a layer in one matrix),
 * interleave (per KV group, or in blocks of rows), stack (all experts of a layer in one parameter),
 * transpose and pad (vocabularies). A framework says so in a table of packings; from it and the
 * sharding follows, for each tensor on a rank, an affine map from logical indices to elements of a
 * parameter, so that data can be sent from and received into live parameters.
 *
 *   vLLM, tp 2, rank 1; q [8, 4], k and v [4, 4]:  qkv_proj is [8, 4]: rows q q q q k k v v
 *   k: rows 2-3 of the tensor are {[2, 4) at 4}, stride {4, 1}, offset 0
 */

#include "model/layout/refit-layout.h"

G_BEGIN_DECLS

/* How logical tensors become one parameter along its rows. */
typedef enum {
    REFIT_PACK_OWN,      /* a parameter of its own */
    REFIT_PACK_CONCAT,   /* the rank's shards of the parts one after the other; parts without dims
                            are numbers along a dim */
    REFIT_PACK_KV_GROUP, /* per KV head: its query rows, then its key rows, then its value rows;
                            output gates that share the query tensor follow the queries */
    REFIT_PACK_BLOCKS,   /* blocks of the layout's block rows of each part in turn; one after the
                            other when it states none */
} RefitPack;

/* What a tensor that is several parts by itself has along its rows. */
typedef enum {
    REFIT_INNER_ONE,    /* it is one part */
    REFIT_INNER_HALVES, /* gate, then up */
    REFIT_INNER_PAIRS,  /* a row of gate and a row of up in turn */
} RefitInner;

/*
 * One row of a framework's table. The first row whose role, ending and option fit a tensor holds; a
 * tensor without a row is a parameter of its own name.
 *
 * In `ending`, '#' stands for the number of an expert and a '*' at the end for the last word of the
 * name (weight, bias, weight_scale_inv); `parameter` takes the place of the ending, with the word
 * at its '*' and, when it is not stacked, the local number of the expert at its '#'. A parameter
 * that begins with '/' is a whole name, for tensors outside of MTP layers.
 */
typedef struct _RefitPacking {
    RefitRole role;
    const char *ending;
    const char *parameter;
    RefitPack pack;
    guint part;          /* place among the parts of the parameter, from 0 */
    gboolean stacked;    /* experts along a leading dim of slots: as the layout states them, else
                            by copy and number; those without a number last */
    gboolean transposed; /* the last two dims change places */
    RefitInner inner;
    guint option;       /* RefitPackingOption that this row needs; 0: none */
    const char *values; /* what the engine holds in place of the hub's number x; NULL: x itself */
} RefitPacking;

/* What a layout adds to its framework's table. */
typedef enum {
    REFIT_PACKING_GROUPED_EXPERTS = 1 << 0, /* one parameter for all experts of a layer */
    REFIT_PACKING_SHARED_SLOT = 1 << 1,     /* the shared expert is one more routed one */
    REFIT_PACKING_COMPRESSED_Q = 1 << 2,    /* latent attention compresses queries, too */
} RefitPackingOption;

/*
 * The row of `framework`'s table for `tensor`, or NULL. *parameter_out takes the engine's name,
 * with a '#' where the local number of an expert goes; free with g_free. `options`:
 * RefitPackingOption.
 */
const RefitPacking *refit_packing_find(const RefitFramework *framework, guint options,
                                       const RefitTensor *tensor, char **parameter_out);

/* What a side holds in place of the number x of `tensor`: "-exp(x)"; "x" where it is the same. */
const char *refit_layout_values(const RefitLayout *layout, guint tensor);
/* A bit for each role of which some tensors may be held so: 1 << role. */
guint64 refit_layout_value_roles(const RefitLayout *layout);

/* Tables of the frameworks (refit-packings.c), for RefitFramework. */
extern const RefitPacking refit_packings_megatron[], refit_packings_vllm[], refit_packings_sglang[];
extern const char *const refit_prefixes_megatron[];
extern const char *const refit_prefixes_vllm[];
extern const char *const refit_prefixes_sglang[];

typedef struct {
    char *name;
    RefitDtype dtype;
    guint n_dims;
    guint64 shape[REFIT_MAX_DIMS]; /* on this rank, padding included; dense, row-major */
    guint64 bytes;
    guint n_tensors; /* logical tensors with a view of it on this rank; 0: all is padding */
} RefitParameter;

/*
 * The element with logical indices i lies at
 *   offset + sum over dims d of stride[d] * place(d, i[d])
 * elements from the start of the parameter; place() is the place that `region` gives, counted
 * inside the parameter. The offset is that of the expert's slot.
 */
typedef struct {
    guint tensor;    /* of the model */
    guint parameter; /* position in RefitRankViews.parameters */
    RefitRegion region;
    guint64 offset;
    guint64 stride[REFIT_MAX_DIMS];
} RefitView;

/*
 * All parameters and views of one rank. Views are in the order of (tensor, parameter, offset); a
 * tensor held twice has two, as has one whose experts are parameters of their own. Parameters are
 * in the order of their first tensor.
 */
typedef struct {
    guint rank;
    guint n_parameters, n_views;
    RefitParameter *parameters;
    RefitView *views;
} RefitRankViews;

/*
 * `rank` is a rank of the layout; one that holds nothing has no parameters. Errors: those of
 * refit_sharding_local(), naming the tensor; REFIT_ERROR_INVALID when parts that share a parameter
 * do not fit together (dtypes or other dims differ, groups do not divide the rows, two have one
 * place), two parameters would have one name, or a stack has too many experts,
 * REFIT_ERROR_GRANULE_SPLIT when a shard is not a whole number of blocks. Cost: tensors of the
 * model plus intervals held.
 */
RefitRankViews *refit_rank_views_new(const RefitLayout *layout, guint rank, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
void refit_rank_views_free(RefitRankViews *views);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(RefitRankViews, refit_rank_views_free)
/* First view of `tensor`, or NULL; *n_out (may be NULL) takes how many there are. */
const RefitView *refit_rank_views_find(const RefitRankViews *views, guint tensor, guint *n_out);

/* `length` elements that are contiguous in both parameters. Offsets in elements. */
typedef struct {
    guint64 from, to, length;
} RefitRun;

/*
 * Appends to `runs` (of RefitRun) the runs that move `region`, which both views hold, in the order
 * of `to`, neighbours joined. refit_runs_join() sorts all runs of one pair of parameters by `to`
 * and joins neighbours that continue each other on both sides.
 */
void refit_view_append_runs(const RefitView *from, const RefitView *to, const RefitRegion *region,
                            GArray *runs);
void refit_runs_join(GArray *runs);
/* TRUE when the region, which the view holds, lies in one run in row-major order; *place_out: the
 * first element's place. */
gboolean refit_view_is_run(const RefitView *view, const RefitRegion *region, guint64 *place_out);

/*
 * Whether `tensor` keeps its rows together in this layout: on every rank it has one view at most,
 * and that is the rank's shard, row-major, at some offset. FALSE where it is interleaved,
 * transposed, stacked by itself or cut in parts. Without making views. Cost: a search in the table
 * of packings.
 */
gboolean refit_layout_keeps_rows(const RefitLayout *layout, guint tensor);
/* Whether `region` is one run of the parameter of `rank`; the tensor keeps its rows. */
gboolean refit_layout_is_run(const RefitLayout *layout, guint tensor, guint rank,
                             const RefitRegion *region);

G_END_DECLS
