/*
 * The SVG of one tensor. Two dims are drawn, those that either side cuts; indices are to scale.
 * Shards too small for their text have none: what cannot be read is in the list below the drawing,
 * which is cut where it gets long. Coordinates have one decimal, so that the picture is the same on
 * every machine.
 */

#include "cli/cli-picture.h"
#include "cli/cli-table.h"
#include "model/base/refit-units.h"

#include <string.h>

#define WIDTH 1000.0
#define SIDE_WIDTH 230.0
#define SOURCE_X 140.0
#define TARGET_X (WIDTH - 140.0 - SIDE_WIDTH)
#define TOP 132.0
#define LINE 17.0
#define GAP 14.0    /* between frames of a side */
#define OTHERS 34.0 /* height of the box for ranks without a shard */

enum {
    MAX_LIST = 14,    /* lines below the drawing */
    MAX_ARROWS = 128, /* drawn */
    MAX_LABELS = 20,  /* arrows up to which each has its bytes */
    MAX_RUNS = 48,    /* intervals of a shard and dim that are drawn */
};

/* Light fills for shards, in turn. */
static const char *const fills[] = {"#cfe3f5", "#fbe3c4", "#d3ecd0", "#efd3e6",
                                    "#fdf1b8", "#d7d5f0", "#cdeeee", "#f6d0cd"};
static const char *const link_colours[] = {"#7a7a7a", "#2e8540", "#1f5fa8"};

typedef struct {
    double x, y, w, h;
} Box;

typedef struct {
    GString *out;
    const RefitClass *class;
    guint row_dim, column_dim; /* REFIT_MAX_DIMS: none */
    double height;
    guint *lane[2], n_lanes[2]; /* target, source: frame of each shard, below each other */
    const GArray *edges;        /* of CliEdge */
    gboolean others;            /* some ranks without a shard take part */
} Picture;

static const RefitHolding *holding_of(const Picture *picture, gboolean source) {
    return source ? picture->class->source : picture->class->destination;
}

/* ---- writing ---- */

/* Appends a format in which every '~' is the next number, with one decimal. */
static void put(Picture *picture, const char *format, ...) {
    va_list numbers;

    va_start(numbers, format);
    for (; *format != '\0'; format++) {
        if (*format == '~') {
            char text[G_ASCII_DTOSTR_BUF_SIZE];

            g_string_append(picture->out,
                            g_ascii_formatd(text, sizeof text, "%.1f", va_arg(numbers, double)));
        } else {
            g_string_append_c(picture->out, *format);
        }
    }
    va_end(numbers);
}

static void put_text(Picture *picture, double x, double y, const char *attributes,
                     const char *text) {
    g_autofree char *safe = g_markup_escape_text(text, -1);

    put(picture, "<text x=\"~\" y=\"~\" ", x, y);
    g_string_append_printf(picture->out, "%s>%s</text>\n", attributes, safe);
}

static char *shape_text(const RefitClass *class) {
    GString *text = g_string_new("[");

    for (guint d = 0; d < class->n_dims; d++)
        g_string_append_printf(text, "%s%" G_GUINT64_FORMAT, d > 0 ? ", " : "", class->shape[d]);
    return g_string_free(g_string_append(text, "]"), FALSE);
}

/* ---- shards ---- */

static gboolean is_cut(const RefitClass *class, const RefitHolding *holding, guint dim) {
    for (guint p = 0; p < holding->n_pieces; p++) {
        if (holding->pieces[p].region.dims[dim]->extent != class->shape[dim])
            return TRUE;
    }
    return FALSE;
}

/* Rows and columns of the drawing: dims that are cut, else the first and the last. */
static void choose_dims(Picture *picture) {
    const RefitClass *class = picture->class;
    guint chosen[2] = {REFIT_MAX_DIMS, REFIT_MAX_DIMS}, n = 0;

    for (guint d = 0; d < class->n_dims && n < 2; d++) {
        if (is_cut(class, class->source, d) || is_cut(class, class->destination, d))
            chosen[n++] = d;
    }
    for (guint d = class->n_dims; d-- > 0 && n < 2;) {
        if (class->n_dims > 1 && d != chosen[0])
            chosen[n++] = d;
    }
    if (n == 0 && class->n_dims == 1)
        chosen[n++] = 0;
    picture->row_dim = MIN(chosen[0], chosen[1]);
    picture->column_dim = MAX(chosen[0], chosen[1]);
    if (picture->row_dim == picture->column_dim)
        picture->column_dim = REFIT_MAX_DIMS;
}

/*
 * Shards that share elements, as those of two pools do, cannot be drawn in one frame: each goes to
 * the first frame where it meets no other.
 */
static void choose_lanes(Picture *picture, gboolean source) {
    const RefitHolding *holding = holding_of(picture, source);
    guint *lane = g_new0(guint, holding->n_pieces), n_lanes = 1;

    for (guint p = 0; p < holding->n_pieces; p++) {
        for (guint other = 0; other < p; other++) {
            if (lane[other] != lane[p] || refit_region_common(&holding->pieces[p].region,
                                                              &holding->pieces[other].region) == 0)
                continue;
            lane[p]++;
            other = G_MAXUINT; /* from the first again */
        }
        n_lanes = MAX(n_lanes, lane[p] + 1);
    }
    picture->lane[source ? 1 : 0] = lane;
    picture->n_lanes[source ? 1 : 0] = n_lanes;
}

static Box frame_of(const Picture *picture, gboolean source, guint lane) {
    guint n = picture->n_lanes[source ? 1 : 0];
    double height = (picture->height - GAP * (n - 1)) / n;

    return (Box){source ? SOURCE_X : TARGET_X, TOP + lane * (height + GAP), SIDE_WIDTH, height};
}

/* Box of run (`row`, `column`) of a shard along the drawn dims. */
static Box box_of(const Picture *picture, gboolean source, guint index, guint row, guint column) {
    const RefitClass *class = picture->class;
    const RefitPiece *piece = &holding_of(picture, source)->pieces[index];
    Box box = frame_of(picture, source, picture->lane[source ? 1 : 0][index]);

    if (picture->row_dim < class->n_dims) {
        const RefitInterval *item = &piece->region.dims[picture->row_dim]->items[row];
        double scale = box.h / (double)class->shape[picture->row_dim];

        box.y += (double)item->lo * scale;
        box.h = (double)(item->hi - item->lo) * scale;
    }
    if (picture->column_dim < class->n_dims) {
        const RefitInterval *item = &piece->region.dims[picture->column_dim]->items[column];
        double scale = SIDE_WIDTH / (double)class->shape[picture->column_dim];

        box.x += (double)item->lo * scale;
        box.w = (double)(item->hi - item->lo) * scale;
    }
    return box;
}

static guint runs_along(const Picture *picture, const RefitPiece *piece, guint dim) {
    return dim < picture->class->n_dims ? MIN(piece->region.dims[dim]->n, MAX_RUNS) : 1;
}

/* The largest box of a shard, for its text and the ends of its arrows. */
static Box main_box(const Picture *picture, gboolean source, guint index) {
    const RefitHolding *holding = holding_of(picture, source);
    const RefitPiece *piece = &holding->pieces[index];
    Box best = {.w = 0};

    if (index == holding->n_pieces)
        return (Box){SOURCE_X, TOP + picture->height + 12, SIDE_WIDTH, OTHERS};
    for (guint r = 0; r < runs_along(picture, piece, picture->row_dim); r++) {
        for (guint c = 0; c < runs_along(picture, piece, picture->column_dim); c++) {
            Box box = box_of(picture, source, index, r, c);

            if (box.w * box.h > best.w * best.h)
                best = box;
        }
    }
    return best;
}

static void draw_label(Picture *picture, Box box, const char *text, guint length) {
    double wide = 6.0 * length + 10;

    if (box.w >= wide && box.h >= 13) {
        put_text(picture, box.x + 5, box.y + MIN(box.h / 2 + 4, 15), "class=\"ranks\"", text);
    } else if (box.h >= wide && box.w >= 13) {
        double x = box.x + MIN(box.w / 2 + 4, 14), y = box.y + box.h - 5;

        put(picture, "<g transform=\"translate(~ ~) rotate(-90)\">", x, y);
        put_text(picture, 0, 0, "class=\"ranks\"", text);
        g_string_append(picture->out, "</g>\n");
    }
}

static void draw_side(Picture *picture, gboolean source) {
    const RefitHolding *holding = holding_of(picture, source);

    for (guint p = 0; p < holding->n_pieces; p++) {
        const RefitPiece *piece = &holding->pieces[p];

        for (guint r = 0; r < runs_along(picture, piece, picture->row_dim); r++) {
            for (guint c = 0; c < runs_along(picture, piece, picture->column_dim); c++) {
                Box box = box_of(picture, source, p, r, c);

                put(picture, "<rect x=\"~\" y=\"~\" width=\"~\" height=\"~\" ", box.x, box.y, box.w,
                    box.h);
                g_string_append_printf(picture->out, "fill=\"%s\" class=\"shard\"/>\n",
                                       fills[p % G_N_ELEMENTS(fills)]);
            }
        }
    }
    for (guint lane = 0; lane < picture->n_lanes[source ? 1 : 0]; lane++) {
        Box box = frame_of(picture, source, lane);

        put(picture, "<rect x=\"~\" y=\"~\" width=\"~\" height=\"~\" class=\"frame\"/>\n", box.x,
            box.y, box.w, box.h);
    }
    for (guint p = 0; p < holding->n_pieces; p++) {
        g_autofree char *ranks =
            cli_ranks_to_string(holding->pieces[p].ranks, holding->pieces[p].n_ranks);
        g_autofree char *text =
            g_strconcat(holding->pieces[p].n_ranks == 1 ? "rank " : "ranks ", ranks, NULL);

        draw_label(picture, main_box(picture, source, p), text, (guint)strlen(text));
    }
}

/* A box below the source for ranks that pass the tensor on but hold none of it. */
static void draw_others(Picture *picture) {
    Box box = main_box(picture, TRUE, picture->class->source->n_pieces);

    put(picture, "<rect x=\"~\" y=\"~\" width=\"~\" height=\"~\" class=\"others\"/>\n", box.x,
        box.y, box.w, box.h);
    put_text(picture, box.x + 5, box.y + 14, "class=\"ranks\"", "ranks without a shard");
}

/* ---- arrows ---- */

static gboolean is_across(const CliEdge *edge) {
    return edge->from_source != edge->to_source;
}

/*
 * Where an end of edge `index` meets its shard. The arrows of a shard share out its height in the
 * order of the shards at their other ends, those across and those beside the drawing apart. Boxes
 * of full height lie side by side: there each has a height of its own.
 */
static double end_place(const Picture *picture, guint index, gboolean at_from, Box box) {
    const CliEdge *own = &g_array_index(picture->edges, CliEdge, index);
    gboolean source = at_from ? own->from_source : own->to_source;
    guint piece = at_from ? own->from : own->to, other = at_from ? own->to : own->from;
    guint n = 0, before = 0, n_pieces = holding_of(picture, source)->n_pieces;

    for (guint i = 0; i < MIN(picture->edges->len, MAX_ARROWS); i++) {
        const CliEdge *edge = &g_array_index(picture->edges, CliEdge, i);

        for (guint end = 0; end < 2; end++) {
            guint here = end == 0 ? edge->from : edge->to, there = end == 0 ? edge->to : edge->from;

            if (is_across(edge) != is_across(own) || here != piece ||
                (end == 0 ? edge->from_source : edge->to_source) != source ||
                (end == 1 && here == there && !is_across(edge)))
                continue;
            n++;
            before += there < other || (there == other && i < index) ? 1 : 0;
        }
    }
    double share = (before + 0.5) / n;
    if (n_pieces > 1 && piece < n_pieces && box.h >= frame_of(picture, source, 0).h - 0.5)
        share = (piece + share) / n_pieces;
    return box.y + box.h * share;
}

static void draw_ring(Picture *picture, Box box, double y, const CliEdge *edge, double thickness) {
    put(picture, "<circle cx=\"~\" cy=\"~\" r=\"~\" ", box.x + box.w / 2, y,
        CLAMP(box.w / 3, 2, 5));
    g_string_append_printf(picture->out, "class=\"arrow\" stroke=\"%s\" ",
                           link_colours[edge->link]);
    put(picture, "stroke-width=\"~\"/>\n", MIN(thickness, box.w / 4));
}

static void draw_arrow(Picture *picture, guint index, double thickness, gboolean labelled) {
    const CliEdge *edge = &g_array_index(picture->edges, CliEdge, index);
    gboolean source = edge->from_source, loop = !is_across(edge) && edge->from == edge->to;
    Box from = main_box(picture, source, edge->from);
    Box to = main_box(picture, edge->to_source, edge->to);
    double y1 = end_place(picture, index, TRUE, from), y2 = end_place(picture, index, FALSE, to);
    double left = source ? SOURCE_X : TARGET_X, x1, x2, bend1, bend2;

    if (is_across(edge)) {
        x1 = source ? from.x + from.w : from.x;
        x2 = source ? to.x : to.x + to.w;
        bend1 = x1 + (source ? 90 : -90);
        bend2 = x2 - (source ? 90 : -90);
    } else { /* beside the drawing, outside */
        x1 = source ? from.x : from.x + from.w;
        x2 = source ? to.x : to.x + to.w;
        bend1 = bend2 = source ? left - 44 : left + SIDE_WIDTH + 44;
        if (loop && (source ? from.x > left + 0.5 : from.x + from.w < left + SIDE_WIDTH - 0.5)) {
            draw_ring(picture, from, y1, edge, thickness);
            return;
        }
    }
    if (loop) {
        y1 -= 6;
        y2 = y1 + 12;
    }
    put(picture, "<path d=\"M~ ~C~ ~ ~ ~ ~ ~\" ", x1, y1, bend1, y1, bend2, y2, x2, y2);
    g_string_append_printf(picture->out, "class=\"arrow\" stroke=\"%s\" ",
                           link_colours[edge->link]);
    put(picture, "stroke-width=\"~\" ", thickness);
    g_string_append_printf(picture->out, "marker-end=\"url(#end%u)\"/>\n", (guint)edge->link);
    if (!labelled)
        return;
    g_autofree char *bytes = refit_format_bytes(edge->bytes);
    if (is_across(edge))
        put_text(picture, x2 + (source ? -14 : 14), y2 - 4,
                 source ? "class=\"bytes\" text-anchor=\"end\"" : "class=\"bytes\"", bytes);
    else
        put_text(picture, bend1 + (source ? 6 : -6), (y1 + y2) / 2 + 4,
                 source ? "class=\"bytes\" text-anchor=\"end\"" : "class=\"bytes\"", bytes);
}

static void draw_arrows(Picture *picture) {
    guint64 most = 1;

    for (guint i = 0; i < picture->edges->len; i++)
        most = MAX(most, g_array_index(picture->edges, CliEdge, i).bytes);
    for (guint i = 0; i < MIN(picture->edges->len, MAX_ARROWS); i++) {
        const CliEdge *edge = &g_array_index(picture->edges, CliEdge, i);

        draw_arrow(picture, i, 1 + 2.5 * (double)edge->bytes / (double)most,
                   picture->edges->len <= MAX_LABELS);
    }
}

/* ---- words around the drawing ---- */

static char *side_summary(const RefitCase *refit_case, gboolean source) {
    guint n = source ? 1 : refit_case->n_destinations;
    GString *text = g_string_new(NULL);

    for (guint i = 0; i < n; i++) {
        const RefitLayout *layout = source ? refit_case->source : refit_case->destinations[i];

        g_string_append_printf(text, "%s%s", i > 0 ? "; " : "", refit_layout_summary(layout));
    }
    if (text->len > 64) {
        g_string_truncate(text, 61);
        g_string_append(text, "...");
    }
    return g_string_free(text, FALSE);
}

static char *shards_text(const RefitHolding *holding) {
    guint least = G_MAXUINT, most = 0;
    GString *text = g_string_new(NULL);

    for (guint p = 0; p < holding->n_pieces; p++) {
        least = MIN(least, holding->pieces[p].n_ranks);
        most = MAX(most, holding->pieces[p].n_ranks);
    }
    g_string_printf(text, "%u shard%s, ", holding->n_pieces, holding->n_pieces == 1 ? "" : "s");
    if (least == most)
        g_string_append_printf(text, "%u cop%s", most, most == 1 ? "y" : "ies");
    else
        g_string_append_printf(text, "%u to %u copies", least, most);
    if (holding->n_pieces > 1)
        g_string_append(text, " each");
    return g_string_free(text, FALSE);
}

static char *drawn_text(const Picture *picture) {
    const RefitClass *class = picture->class;
    GString *text = g_string_new(NULL);

    if (picture->row_dim < class->n_dims)
        g_string_append_printf(text, "; down: dim %u", picture->row_dim);
    if (picture->column_dim < class->n_dims)
        g_string_append_printf(text, ", across: dim %u", picture->column_dim);
    for (guint d = 0; d < class->n_dims; d++) {
        if (d != picture->row_dim && d != picture->column_dim &&
            (is_cut(class, class->source, d) || is_cut(class, class->destination, d)))
            g_string_append_printf(text, "; dim %u is cut as well", d);
    }
    return g_string_free(text, FALSE);
}

static void draw_header(Picture *picture, const RefitPlan *plan, const RefitTensor *tensor,
                        const GArray *edges) {
    const RefitCase *refit_case = plan->problem->refit_case;
    g_autofree char *shape = shape_text(picture->class), *drawn = drawn_text(picture);
    g_autofree char *bytes = refit_format_bytes(tensor->bytes);
    g_autofree char *line =
        g_strdup_printf("%s %s, %s%s", shape, refit_dtype_name(tensor->dtype), bytes, drawn);
    guint64 sums[REFIT_N_LINKS] = {0};
    GString *moved = g_string_new(refit_case->name);

    g_string_append_printf(moved, ", strategy %s:", plan->strategy);
    for (guint i = 0; i < edges->len; i++) {
        const CliEdge *edge = &g_array_index(edges, CliEdge, i);
        sums[edge->link] += edge->bytes;
    }
    for (guint link = REFIT_N_LINKS; link-- > 0;) {
        g_autofree char *sum = refit_format_bytes(sums[link]);

        if (sums[link] > 0 || link == REFIT_LINK_NETWORK)
            g_string_append_printf(moved, "%s %s %s", link == REFIT_LINK_NETWORK ? "" : ",", sum,
                                   refit_link_name((RefitLink)link));
    }
    put_text(picture, 24, 30, "class=\"title\"", tensor->name);
    put_text(picture, 24, 50, "class=\"line\"", line);
    put_text(picture, 24, 68, "class=\"line\"", moved->str);
    g_string_free(moved, TRUE);
    for (guint side = 0; side < 2; side++) {
        gboolean source = side == 0;
        g_autofree char *summary = side_summary(refit_case, source);
        g_autofree char *shards = shards_text(holding_of(picture, source));
        g_autofree char *text = g_strconcat(source ? "from " : "to ", summary, NULL);
        double x = source ? 24 : WIDTH - 24;
        const char *attributes = source ? "class=\"side\"" : "class=\"side\" text-anchor=\"end\"";

        put_text(picture, x, TOP - 28, attributes, text);
        put_text(picture, source ? SOURCE_X : TARGET_X + SIDE_WIDTH, TOP - 10,
                 source ? "class=\"line\"" : "class=\"line\" text-anchor=\"end\"", shards);
    }
}

static double draw_list(Picture *picture, const GArray *edges) {
    double y = TOP + picture->height + (picture->others ? OTHERS + 12 : 0) + 34;
    guint n = edges->len <= MAX_LIST ? edges->len : MAX_LIST - 1;

    put_text(picture, 24, y, "class=\"side\"", "senders");
    put_text(picture, 360, y, "class=\"side\"", "receivers");
    put_text(picture, 700, y, "class=\"side\"", "over");
    put_text(picture, WIDTH - 24, y, "class=\"side\" text-anchor=\"end\"", "moved");
    for (guint i = 0; i < n; i++) {
        const CliEdge *edge = &g_array_index(edges, CliEdge, i);
        g_autofree char *senders =
            cli_ranks_to_string((const guint *)(void *)edge->senders->data, edge->senders->len);
        g_autofree char *receivers =
            cli_ranks_to_string((const guint *)(void *)edge->receivers->data, edge->receivers->len);
        g_autofree char *bytes = refit_format_bytes(edge->bytes);
        g_autofree char *moved = g_strdup_printf("%s in %" G_GUINT64_FORMAT " transfer%s", bytes,
                                                 edge->transfers, edge->transfers == 1 ? "" : "s");
        g_autofree char *colour =
            g_strdup_printf("class=\"line\" fill=\"%s\"", link_colours[edge->link]);

        y += LINE;
        put_text(picture, 24, y, "class=\"line\"", senders);
        put_text(picture, 360, y, "class=\"line\"", receivers);
        put_text(picture, 700, y, colour, refit_link_name(edge->link));
        put_text(picture, WIDTH - 24, y, "class=\"line\" text-anchor=\"end\"", moved);
    }
    if (n < edges->len) {
        guint64 rest = 0;

        for (guint i = n; i < edges->len; i++)
            rest += g_array_index(edges, CliEdge, i).bytes;
        g_autofree char *bytes = refit_format_bytes(rest);
        g_autofree char *text =
            g_strdup_printf("and %u more pairs of shards, %s", edges->len - n, bytes);

        y += LINE;
        put_text(picture, 24, y, "class=\"line\"", text);
    }
    return y + 20;
}

/* Tall enough for a line of text per shard, within reason. */
static double choose_height(const Picture *picture) {
    guint most = MAX(picture->class->source->n_pieces, picture->class->destination->n_pieces);
    guint lanes = MAX(picture->n_lanes[0], picture->n_lanes[1]);

    return CLAMP(26.0 * most, 220.0, 640.0) + (lanes - 1) * 60;
}

char *cli_picture_to_svg(const RefitPlan *plan, guint class_index, const RefitTensor *tensor) {
    g_autoptr(GArray) edges = cli_edges_new(plan, class_index);
    const RefitClass *class = &plan->problem->classes[class_index];
    Picture picture = {.out = g_string_new(NULL), .class = class, .edges = edges};
    GString *whole = g_string_new("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");

    choose_dims(&picture);
    choose_lanes(&picture, FALSE);
    choose_lanes(&picture, TRUE);
    picture.height = choose_height(&picture);
    draw_header(&picture, plan, tensor, edges);
    draw_side(&picture, TRUE);
    draw_side(&picture, FALSE);
    for (guint i = 0; i < edges->len; i++) {
        const CliEdge *edge = &g_array_index(edges, CliEdge, i);

        picture.others |= (edge->from_source && edge->from == class->source->n_pieces) ||
                          (edge->to_source && edge->to == class->source->n_pieces);
    }
    if (picture.others)
        draw_others(&picture);
    draw_arrows(&picture);
    guint height = (guint)draw_list(&picture, edges);

    g_string_append_printf(
        whole,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%u\" height=\"%u\" "
        "viewBox=\"0 0 %u %u\" font-family=\"DejaVu Sans, Helvetica, Arial, sans-serif\">\n"
        "<style>\n"
        ".title {font-size: 16px; font-weight: bold}\n"
        ".side {font-size: 12px; font-weight: bold}\n"
        ".line {font-size: 12px}\n"
        ".ranks {font-size: 10px; fill: #333}\n"
        ".bytes {font-size: 10px; paint-order: stroke; stroke: white; stroke-width: 3px}\n"
        ".shard {stroke: white; stroke-width: 0.5}\n"
        ".frame {fill: none; stroke: #555}\n"
        ".others {fill: none; stroke: #999; stroke-dasharray: 4 3}\n"
        ".arrow {fill: none; stroke-opacity: 0.75}\n"
        "</style>\n<defs>\n",
        (guint)WIDTH, height, (guint)WIDTH, height);
    for (guint link = 0; link < REFIT_N_LINKS; link++)
        g_string_append_printf(
            whole,
            "<marker id=\"end%u\" markerUnits=\"userSpaceOnUse\" markerWidth=\"9\" "
            "markerHeight=\"9\" refX=\"8\" refY=\"4.5\" orient=\"auto\">"
            "<path d=\"M0 0L9 4.5L0 9z\" fill=\"%s\"/></marker>\n",
            link, link_colours[link]);
    g_string_append_printf(whole,
                           "</defs>\n<rect width=\"%u\" height=\"%u\" fill=\"white\"/>\n%s</svg>\n",
                           (guint)WIDTH, height, picture.out->str);
    g_string_free(picture.out, TRUE);
    g_free(picture.lane[0]);
    g_free(picture.lane[1]);
    return g_string_free(whole, FALSE);
}
