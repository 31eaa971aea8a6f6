#pragma once

/*
 * Two questions about sets of ranks that hold the same bytes: the fewest ranks that can serve all
 * of them, and the least that the busiest rank must send. Internal to what is counted of a problem.
 */

#include "model/geometry/refit-geometry.h"

G_BEGIN_DECLS

/*
 * Fewest ranks with one in every set; 0 for no sets. Finding it is hard in general, so the search
 * gives up after `budget` steps and answers the best it has met: *exact_out is then FALSE. Sets
 * that are disjoint, nested or share their members need no search.
 */
guint refit_cover_fewest(const RefitRankSet *sets, guint n, guint budget, gboolean *exact_out);

/*
 * Each set has `bytes` to be sent by its members, shared between them in any way. The smallest
 * possible maximum over ranks, rounded up to whole bytes. The sum of all bytes fits in 64 bits.
 */
guint64 refit_spread_least(const RefitRankSet *sets, const guint64 *bytes, guint n);

G_END_DECLS
