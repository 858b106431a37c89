// A translator of the usual shape in one call: pre-norm blocks with ReLU in int8, greedy or by
// beams. Each number is computed as the kernels above compute it for a model that runs operation by
// operation, in the same order: the bits are the same.

enum {
    SOURCE_TOKENS = 400,  // that are read together, so that a core's own cache holds them
    CHUNK = 64,           // scores that share a maximum
    DEPTH = 64,           // blocks of a decoder at most
    BUFFERS = 4 * DEPTH + 40,
};

// Norm, first and last map of attention or of an MLP; `k` and `v` where they read another sequence.
typedef struct {
    Norm norm;
    Map in, k, v, out;
} Part;

typedef struct {
    Part own, cross, mlp;
} Block;

// Rows of a table times `scale`, plus a row for each position; blocks; the last norm.
typedef struct {
    const float *table, *waves;  // waves: NULL where there are none
    float scale;
    const Block *blocks;
    int64_t depth;
    Norm norm;  // without weight: none
} Side;

typedef struct {
    Side encoder, decoder;
    int64_t dim, heads, hidden;
    float scale;  // of attention
    Map head;
} Network;

// A shortlist: `always` (common.n,) may be written for any source, `best` from bounds[i] on after
// source id i. The others of a batch are packed anew from the whole numbers of the head's weights.
typedef struct {
    Map common;
    const int64_t *always, *best, *bounds;
    const int8_t *whole;
    const float *step, *bias;
    int64_t vocab;
} Words;

// Memory that is freed together.
typedef struct {
    void *held[BUFFERS];
    int count, failed;
} Memory;

static void *take(Memory *memory, int64_t bytes) {
    void *new = malloc(bytes + 64);
    memory->failed |= !new;
    return memory->held[memory->count++] = new;
}

static void release(Memory *memory) {
    for (int i = 0; i < memory->count; i++) free(memory->held[i]);
}

// Where rows are worked on: the stream x (m, dim), what maps make of it, bytes, room for scores.
typedef struct {
    float *x, *wide, *z, *line, *scores;
    void *bytes;
} Desk;

static Desk desk_for(Memory *memory, const Network *net, int64_t m, int64_t span) {
    int64_t dim = net->dim, hidden = net->hidden, wide = hidden > 3 * dim ? hidden : 3 * dim;
    return (Desk){
        take(memory, 4 * m * dim), take(memory, 4 * m * wide), take(memory, 4 * m * dim),
        take(memory, 4 * dim),     take(memory, 4 * attend_size(span, dim / net->heads)),
        take(memory, rows_size(m, hidden > dim ? hidden : dim)),
    };
}

// m rows of k numbers as bytes, after a norm where there is one.
static Rows rounded(const Norm *norm, const float *x, int64_t m, int64_t k, Desk *desk) {
    Rows rows = rows_at(desk->bytes, m, k);
    for (int64_t r = 0; r < m; r++, x += k) {
        if (norm) normalise_row(norm, x, k, desk->line);
        round_row(norm ? desk->line : x, k, &rows, r);
    }
    return rows;
}

static void embed(const Side *side, int64_t id, int64_t position, int64_t dim, float *out) {
    const float *row = side->table + id * dim;
    const float *wave = side->waves ? side->waves + position * dim : NULL;
    for (int64_t i = 0; i < dim; i += LANES) {
        Floats x = times(load(row + i), all(side->scale));
        store(out + i, wave ? plus(x, load(wave + i)) : x);
    }
}

// z, found by attention, through the last map of a part and onto the stream.
static void add_found(const Part *part, int64_t m, int64_t dim, Desk *desk) {
    Rows rows = rounded(NULL, desk->z, m, dim, desk);
    multiply(&part->out, &rows, m, desk->x, dim, ADD);
}

static void think(const Part *mlp, int64_t m, int64_t dim, Desk *desk) {
    int64_t hidden = mlp->in.n;
    Rows rows = rounded(&mlp->norm, desk->x, m, dim, desk);
    multiply(&mlp->in, &rows, m, desk->wide, hidden, RELU);
    rows = rounded(NULL, desk->wide, m, hidden, desk);
    multiply(&mlp->out, &rows, m, desk->x, dim, ADD);
}

// Final vectors of m rows.
static void finish(const Side *side, const float *x, int64_t m, int64_t dim, float *out) {
    for (int64_t r = 0; r < m; r++, x += dim, out += dim)
        if (side->norm.weight) normalise_row(&side->norm, x, dim, out);
        else memcpy(out, x, 4 * dim);
}

// Sources ----------------------------------------------------------------------------------------

// A batch of sources, one after the other; what the encoder makes of them, (tokens, dim); and for
// each block of the decoder keys and values of that: those of source b from starts[b] · dim on,
// (heads, length, width).
typedef struct {
    const int64_t *ids, *starts;
    int64_t count;
    float *memory, **keys, **values;
} Sources;

static int64_t length_of(const Sources *s, int64_t b) { return s->starts[b + 1] - s->starts[b]; }

// (length, heads · width) of sources `first` to `last` → (heads, length, width) of each.
static void by_head(const Sources *s, int64_t first, int64_t last, const Network *net,
                    const float *x, float *out) {
    int64_t dim = net->dim, width = dim / net->heads;
    out += s->starts[first] * dim;
    for (int64_t b = first; b < last; b++) {
        int64_t length = length_of(s, b);
        for (int64_t h = 0; h < net->heads; h++, out += length * width)
            copy(x + h * width, dim, length, width, out, width);
        x += length * dim;
    }
}

// Read sources `first` to `last`: the encoder, and the decoder's keys and values of what it made.
static void read_sources(const Network *net, const Sources *s, int64_t first, int64_t last,
                         Desk *desk) {
    int64_t dim = net->dim, heads = net->heads, width = dim / heads, base = s->starts[first];
    int64_t m = s->starts[last] - base;
    for (int64_t b = first; b < last; b++)
        for (int64_t i = 0; i < length_of(s, b); i++) {
            int64_t at = s->starts[b] + i;
            embed(&net->encoder, s->ids[at], i, dim, desk->x + (at - base) * dim);
        }
    for (int64_t n = 0; n < net->encoder.depth; n++) {
        const Block *block = net->encoder.blocks + n;
        Rows rows = rounded(&block->own.norm, desk->x, m, dim, desk);
        multiply(&block->own.in, &rows, m, desk->wide, 3 * dim, PLAIN);
        for (int64_t b = first; b < last; b++) {
            int64_t at = s->starts[b] - base, length = length_of(s, b);
            float *q = desk->wide + at * 3 * dim;
            Tensor keys = {q + dim, 0, width, 3 * dim}, values = {q + 2 * dim, 0, width, 3 * dim};
            attend_in(desk->scores, q, 3 * dim, keys, values, (Open){0}, desk->z + at * dim, 1,
                      length, heads, heads, width, length, 0, length > 1, net->scale);
        }
        add_found(&block->own, m, dim, desk);
        think(&block->mlp, m, dim, desk);
    }
    float *out = s->memory + base * dim;
    finish(&net->encoder, desk->x, m, dim, out);
    Rows rows = rounded(NULL, out, m, dim, desk);
    for (int64_t n = 0; n < net->decoder.depth; n++) {
        const Part *cross = &net->decoder.blocks[n].cross;
        multiply(&cross->k, &rows, m, desk->wide, dim, PLAIN);
        by_head(s, first, last, net, desk->wide, s->keys[n]);
        multiply(&cross->v, &rows, m, desk->wide, dim, PLAIN);
        by_head(s, first, last, net, desk->wide, s->values[n]);
    }
}

// Read all of them, a few at a time.
static void read_all(const Network *net, const Sources *s, Memory *memory) {
    int64_t most = SOURCE_TOKENS;
    for (int64_t b = 0; b < s->count; b++) most = most > length_of(s, b) ? most : length_of(s, b);
    most = most < s->starts[s->count] ? most : s->starts[s->count];
    Desk desk = desk_for(memory, net, most, most);
    if (memory->failed) return;
    for (int64_t first = 0, last; first < s->count; first = last) {
        for (last = first + 1; last < s->count; last++)
            if (s->starts[last + 1] - s->starts[first] > most) break;
        read_sources(net, s, first, last, &desk);
    }
}

// Words ------------------------------------------------------------------------------------------

// What the rows of a batch may write: ids all of them, then each its own of some others.
typedef struct {
    Map common, others;
    const int64_t *always;
    int64_t *other;   // (others.n,) ids
    int64_t *own;     // of each source from bounds[b] on, places in `other`, ascending
    int64_t *bounds;  // (sources + 1,)
    int64_t n;        // scores of a row: those of a shorter list are -INFINITY behind it
} Choice;

static void choose(const Words *words, const Network *net, const Sources *s, Memory *memory,
                   Choice *out) {
    *out = (Choice){.common = words ? words->common : net->head};
    out->n = out->common.n;
    if (!words) return;
    out->always = words->always;
    int64_t vocab = words->vocab, listed = 0, tokens = s->starts[s->count];
    for (int64_t i = 0; i < tokens; i++)
        listed += words->bounds[s->ids[i] + 1] - words->bounds[s->ids[i]];
    out->own = take(memory, 8 * listed);
    out->bounds = take(memory, 8 * (s->count + 1));
    int64_t *place = take(memory, 8 * vocab), *last = take(memory, 8 * vocab);
    out->other = take(memory, 8 * vocab);
    if (memory->failed) return;
    int64_t used = 0, most = 0;
    memset(last, 0, 8 * vocab);   // the last source that lists an id, from 1 on
    memset(place, 0, 8 * vocab);  // whether any does, then its place among them
    for (int64_t b = 0; b < s->count; b++) {
        out->bounds[b] = used;
        for (int64_t i = s->starts[b]; i < s->starts[b + 1]; i++)
            for (int64_t j = words->bounds[s->ids[i]]; j < words->bounds[s->ids[i] + 1]; j++) {
                int64_t id = words->best[j];
                if (last[id] == b + 1) continue;
                last[id] = b + 1;
                place[id] = 1;
                out->own[used++] = id;
            }
        most = used - out->bounds[b] > most ? used - out->bounds[b] : most;
    }
    out->bounds[s->count] = used;
    int64_t count = 0;
    for (int64_t id = 0; id < vocab; id++)
        if (place[id]) {
            out->other[count] = id;
            place[id] = count++;
        }
    for (int64_t b = 0; b < s->count; b++) {
        int64_t *own = out->own + out->bounds[b], size = out->bounds[b + 1] - out->bounds[b];
        for (int64_t i = 0; i < size; i++) last[place[own[i]]] = -1 - b;  // marked, then in order
        for (int64_t i = 0, j = 0; j < size; i++)
            if (last[i] == -1 - b) own[j++] = i;
    }
    int64_t k = out->common.k, padded = (count + PANEL - 1) / PANEL * PANEL;
    uint8_t *packed = take(memory, padded * ((k + 3) / 4 * 4));
    float *step = take(memory, 4 * count), *bias = words->bias ? take(memory, 4 * count) : NULL;
    if (memory->failed) return;
    pack_rows(words->whole, out->other, count, k, packed);
    for (int64_t i = 0; i < count; i++) {
        step[i] = words->step[out->other[i]];
        if (bias) bias[i] = words->bias[out->other[i]];
    }
    out->others = (Map){packed, step, bias, count, k};
    out->n += most;
}

// The id at a place of a source's list.
static int64_t id_at(const Choice *c, int64_t source, int64_t place) {
    if (!c->always) return place;
    if (place < c->common.n) return c->always[place];
    int64_t at = c->bounds[source] + place - c->common.n;
    return at < c->bounds[source + 1] ? c->other[c->own[at]] : 0;
}

// Steps ------------------------------------------------------------------------------------------

// Its log-probability: in a greedy search its own, with beams that of all up to it.
typedef struct {
    int32_t id;
    float logprob;
} Token;

// The rows that are being written, in groups of as many for each living source. Keys and values of
// all steps lie where they were made, (steps, room, dim); what a row grew from is in its `past`, so
// nothing is moved when rows change places. `seen` has the attention to the source at each step,
// the mean over the heads of one block, where it is asked for: (steps, room, span).
typedef struct {
    int64_t rows, room, most;       // at present, at most, steps at most
    int64_t *source, *next_source;  // (rows,) of each
    int64_t *column;                // (rows,) ids that are read next
    int32_t *past, *next_past;      // (rows, most)
    Token *tokens, *next_tokens;    // (rows, most)
    float **keys, **values;         // of each block
    float *seen;                    // NULL where nobody asks
    int64_t block, span;            // that is looked at; tokens of a source at most
    float *logits, *others;         // (rows, n), (rows, others)
    float *norm, *maxima;           // of the logits
    int64_t *best;
    Desk desk;
} Writing;

// What rows `first` to `last`, all of one source, find there in block n at step t.
static void look_across(const Network *net, const Sources *s, Writing *w, int64_t n, int64_t t,
                        int64_t first, int64_t last) {
    int64_t dim = net->dim, heads = net->heads, width = dim / heads, b = w->source[first];
    int64_t length = length_of(s, b), at = s->starts[b] * dim;
    Desk *desk = &w->desk;
    for (int64_t h = 0; h < heads; h++, at += length * width) {
        Past past = {s->keys[n] + at, s->values[n] + at, width, width, NULL};
        for (int64_t r = first; r < last; r++) {
            float *weights = desk->scores, *out = desk->z + r * dim + h * width;
            float total = attend_head(desk->wide + r * dim + h * width, &past, NULL, length, width,
                                      net->scale, weights, out);
            if (!w->seen || n != w->block) continue;
            float *seen = w->seen + (t * w->room + r) * w->span;
            for (int64_t i = 0; i < length; i++)
                seen[i] = (h ? seen[i] : 0) + weights[i] / (total * heads);
        }
    }
}

// Scores of what comes after step t: logits (rows, n) with their norms, maxima and best places.
static void read_column(const Network *net, const Sources *s, const Choice *c, Writing *w,
                        int64_t t) {
    int64_t dim = net->dim, heads = net->heads, width = dim / heads, m = w->rows;
    Desk *desk = &w->desk;
    for (int64_t r = 0; r < m; r++) {
        embed(&net->decoder, w->column[r], t, dim, desk->x + r * dim);
        w->past[r * w->most + t] = t * w->room + r;
    }
    for (int64_t n = 0; n < net->decoder.depth; n++) {
        const Block *block = net->decoder.blocks + n;
        Rows rows = rounded(&block->own.norm, desk->x, m, dim, desk);
        multiply(&block->own.in, &rows, m, desk->wide, 3 * dim, PLAIN);
        copy(desk->wide + dim, 3 * dim, m, dim, w->keys[n] + t * w->room * dim, dim);
        copy(desk->wide + 2 * dim, 3 * dim, m, dim, w->values[n] + t * w->room * dim, dim);
        for (int64_t r = 0; r < m; r++)
            for (int64_t h = 0; h < heads; h++) {
                const int32_t *at = w->past + r * w->most;
                Past past = {w->keys[n] + h * width, w->values[n] + h * width, dim, dim, at};
                attend_head(desk->wide + r * 3 * dim + h * width, &past, NULL, t + 1, width,
                            net->scale, desk->scores, desk->z + r * dim + h * width);
            }
        add_found(&block->own, m, dim, desk);
        rows = rounded(&block->cross.norm, desk->x, m, dim, desk);
        multiply(&block->cross.in, &rows, m, desk->wide, dim, PLAIN);
        for (int64_t r = 0, last; r < m; r = last) {  // all rows of a source
            for (last = r; last < m && w->source[last] == w->source[r];) last++;
            look_across(net, s, w, n, t, r, last);
        }
        add_found(&block->cross, m, dim, desk);
        think(&block->mlp, m, dim, desk);
    }
    finish(&net->decoder, desk->x, m, dim, desk->z);
    Rows rows = rounded(NULL, desk->z, m, dim, desk);
    multiply(&c->common, &rows, m, w->logits, c->n, PLAIN);
    if (c->others.n) {
        multiply(&c->others, &rows, m, w->others, c->others.n, PLAIN);
        for (int64_t r = 0; r < m; r++) {
            const int64_t *own = c->own + c->bounds[w->source[r]];
            int64_t size = c->bounds[w->source[r] + 1] - c->bounds[w->source[r]];
            float *to = w->logits + r * c->n + c->common.n;
            for (int64_t i = 0; i < c->n - c->common.n; i++)
                to[i] = i < size ? w->others[r * c->others.n + own[i]] : -INFINITY;
        }
    }
    summary(w->logits, c->n, m, c->n, CHUNK, w->norm, w->best, w->maxima);
}

// Row `to` of the next step is row `from` of this one with one token more.
static void grow(Writing *w, int64_t from, int64_t to, int64_t t, int64_t id, float logprob) {
    w->next_source[to] = w->source[from];
    memcpy(w->next_past + to * w->most, w->past + from * w->most, 4 * (t + 1));
    memcpy(w->next_tokens + to * w->most, w->tokens + from * w->most, sizeof(Token) * t);
    w->next_tokens[to * w->most + t] = (Token){id, logprob};
    w->column[to] = id;
}

static void turn_page(Writing *w, int64_t rows) {
    int32_t *past = w->past;
    Token *tokens = w->tokens;
    int64_t *source = w->source;
    w->past = w->next_past, w->tokens = w->next_tokens, w->source = w->next_source;
    w->next_past = past, w->next_tokens = tokens, w->next_source = source;
    w->rows = rows;
}

// Searches ---------------------------------------------------------------------------------------

// What is asked for: of each source the id to start from and the most tokens; the ids that end one.
// Width 0 is greedy; else so many prefixes are kept, and penalty[n - 1] divides the log-probability
// of n tokens.
typedef struct {
    const int64_t *start, *limits, *ends;
    int64_t ends_count, width, count;
    const double *penalty;
    int64_t block;  // of the decoder, whose attention to the source is noted
} Wish;

// The answers of each source, (sources, count, …), best first; length 0: none.
typedef struct {
    int64_t most;     // tokens of an answer at most
    int64_t *tokens;  // (sources, count, most)
    int64_t *length;
    double *logprob, *score;
    uint8_t *finished;
    float *logprobs;  // (sources, count, most) as in `Token`
    float *memory;    // (source tokens, dim) as in `Sources`
    float *seen;      // (sources, count, most, span), or NULL
} Answers;

static int is_end(const Wish *wish, int64_t id) {
    for (int64_t i = 0; i < wish->ends_count; i++)
        if (wish->ends[i] == id) return 1;
    return 0;
}

static void answer(const Answers *out, int64_t at, const Writing *w, const Token *tokens,
                   const int32_t *past, int64_t length, double logprob, double score,
                   int finished) {
    for (int64_t i = 0, to = at * out->most; i < length; i++, to++) {
        out->tokens[to] = tokens[i].id;
        out->logprobs[to] = tokens[i].logprob;
        if (w->seen) memcpy(out->seen + to * w->span, w->seen + past[i] * w->span, 4 * w->span);
    }
    out->length[at] = length;
    out->logprob[at] = logprob;
    out->score[at] = score;
    out->finished[at] = finished;
}

static void search_greedily(const Network *net, const Sources *s, const Choice *c,
                            const Wish *wish, Writing *w, double *total, const Answers *out) {
    for (int64_t t = 0; w->rows; t++) {
        read_column(net, s, c, w, t);
        int64_t rows = 0;
        for (int64_t r = 0; r < w->rows; r++) {
            int64_t source = w->source[r], id = id_at(c, source, w->best[r]);
            float own = w->logits[r * c->n + w->best[r]] - w->norm[r];
            double logprob = total[r] + own;
            grow(w, r, rows, t, id, own);
            if (is_end(wish, id) || t + 1 >= wish->limits[source]) {
                int64_t at = rows * w->most;
                answer(out, source, w, w->next_tokens + at, w->next_past + at, t + 1, logprob,
                       logprob, is_end(wish, id));
                continue;
            }
            total[rows++] = logprob;
        }
        turn_page(w, rows);
    }
}

// What has ended of a source, best first.
typedef struct {
    float logprob, score;
    int64_t length;
    Token *tokens;
    int32_t *past;
} Ended;

// Add a hypothesis to the best `width`; of equals the earlier one stays in front.
static void pool_one(Ended *pool, int64_t width, Ended new, const Writing *w, int64_t from,
                     int64_t id) {
    int64_t at = width - 1, t = new.length - 1;
    if (!(new.score > pool[at].score)) return;
    new.tokens = pool[at].tokens;  // of the one that falls out
    new.past = pool[at].past;
    memcpy(new.tokens, w->tokens + from * w->most, sizeof(Token) * t);
    memcpy(new.past, w->past + from * w->most, 4 * new.length);
    new.tokens[t] = (Token){id, new.logprob};
    for (; at && new.score > pool[at - 1].score; at--) pool[at] = pool[at - 1];
    pool[at] = new;
}

// The answers of a source that is over: what has ended, then, if too few, what lived, from `row` on.
static void answer_source(const Wish *wish, const Answers *out, int64_t source, const Ended *pool,
                          const Writing *w, int64_t row, float *logprob, int64_t length) {
    int64_t count = 0, first = source * wish->count;
    for (; count < wish->count && pool[count].score > -INFINITY; count++) {
        const Ended *e = pool + count;
        answer(out, first + count, w, e->tokens, e->past, e->length, e->logprob, e->score, 1);
    }
    for (; count < wish->count; count++) {
        int64_t best = 0;
        for (int64_t p = 1; p < wish->width; p++)
            if (logprob[p] > logprob[best]) best = p;
        if (!(logprob[best] > -INFINITY)) return;
        double value = logprob[best];
        int64_t at = (row + best) * w->most;
        answer(out, first + count, w, w->next_tokens + at, w->next_past + at, length, value,
               value / wish->penalty[length - 1], 0);
        logprob[best] = -INFINITY;
    }
}

static int search_by_beams(const Network *net, const Sources *s, const Choice *c, const Wish *wish,
                           Writing *w, Memory *memory, const Answers *out) {
    int64_t width = wish->width, found = (1 + wish->ends_count) * width, most = w->most;
    float *value = take(memory, 4 * s->count * found);
    float *logprob = take(memory, 4 * s->count * width), *next = take(memory, 4 * width);
    int64_t *parent = take(memory, 8 * s->count * found);
    int64_t *token = take(memory, 8 * s->count * found);
    Ended *pools = take(memory, sizeof(Ended) * s->count * width);
    Token *ended = take(memory, sizeof(Token) * s->count * width * most);
    int32_t *past = take(memory, 4 * s->count * width * most);
    if (memory->failed) return 1;
    for (int64_t i = 0; i < s->count * width; i++)
        pools[i] = (Ended){0, -INFINITY, 0, ended + i * most, past + i * most};
    for (int64_t b = 0; b < s->count; b++) logprob[b] = 0;
    int64_t prefixes = 1;
    for (int64_t t = 0; w->rows; t++) {
        read_column(net, s, c, w, t);
        int64_t living = w->rows / prefixes, sources = 0;
        if (continuations(w->logits, c->n, living, prefixes, c->n, CHUNK, w->norm, w->maxima,
                          logprob, found, value, parent, token))
            return 1;
        for (int64_t a = 0; a < living; a++) {
            int64_t source = w->source[a * prefixes], first = sources * width, kept = 0;
            int64_t limit = wish->limits[source], best = 0;
            Ended *pool = pools + source * width;
            for (int64_t i = 0; i < found && value[a * found + i] > -INFINITY; i++) {
                float total = value[a * found + i];
                int64_t from = a * prefixes + parent[a * found + i];
                int64_t id = id_at(c, source, token[a * found + i]);
                if (is_end(wish, id)) {
                    Ended new = {total, total / (float)wish->penalty[t], t + 1, NULL, NULL};
                    if (i < width)  // an end counts only among the best
                        pool_one(pool, width, new, w, from, id);
                } else if (kept < width) {
                    best = kept ? best : i;
                    grow(w, from, first + kept, t, id, total);
                    next[kept++] = total;
                }
            }
            for (int64_t i = kept; i < width; i++) {  // the best one again, as impossible
                int64_t from = a * prefixes + parent[a * found + best];
                int64_t id = id_at(c, source, token[a * found + best]);
                grow(w, from, first + i, t, id, -INFINITY);
                next[i] = -INFINITY;
            }
            // Log-probabilities only fall and the penalty only grows with the length.
            float bound = next[0] / (float)wish->penalty[limit - 1];
            if (!kept || pool[wish->count - 1].score >= bound || t + 1 == limit) {
                answer_source(wish, out, source, pool, w, first, next, t + 1);
                continue;
            }
            memcpy(logprob + first, next, 4 * width);
            sources++;
        }
        prefixes = width;
        turn_page(w, sources * width);
    }
    return 0;
}

static int search(const Network *net, const Words *words, const Sources *s, const Wish *wish,
                  const Answers *out, Memory *memory) {
    int64_t dim = net->dim, depth = net->decoder.depth, most = out->most, span = 0;
    int64_t room = s->count * (wish->width ? wish->width : 1);
    for (int64_t b = 0; b < s->count; b++) span = span > length_of(s, b) ? span : length_of(s, b);
    float *held[2][depth];
    for (int64_t n = 0; n < 2 * depth; n++)
        held[n / depth][n % depth] = take(memory, 4 * most * room * dim);
    Choice c;
    choose(words, net, s, memory, &c);
    Writing w = {s->count, room, most, .keys = held[0], .values = held[1]};
    w.block = wish->block, w.span = span;
    w.seen = out->seen ? take(memory, 4 * most * room * span) : NULL;
    w.source = take(memory, 8 * room), w.next_source = take(memory, 8 * room);
    w.column = take(memory, 8 * room), w.best = take(memory, 8 * room);
    w.past = take(memory, 4 * room * most), w.next_past = take(memory, 4 * room * most);
    w.tokens = take(memory, sizeof(Token) * room * most);
    w.next_tokens = take(memory, sizeof(Token) * room * most);
    w.logits = take(memory, 4 * room * c.n), w.others = take(memory, 4 * room * c.others.n);
    w.norm = take(memory, 4 * room), w.maxima = take(memory, 4 * room * (c.n / CHUNK + 1));
    w.desk = desk_for(memory, net, room, span > most ? span : most);
    double *total = take(memory, 8 * room);
    if (memory->failed) return 1;
    for (int64_t b = 0; b < s->count; b++) {
        w.source[b] = b;
        w.column[b] = wish->start[b];
        total[b] = 0;
    }
    if (wish->width) return search_by_beams(net, s, &c, wish, &w, memory, out);
    search_greedily(net, s, &c, wish, &w, total, out);
    return 0;
}

// Translate `count` sources, ids from starts[b] to starts[b + 1]; `words` is NULL where all may be
// written. Returns 0, or 1 when there is no memory.
int translate(const Network *net, const Words *words, const int64_t *ids, const int64_t *starts,
              int64_t count, const Wish *wish, const Answers *out) {
    Memory reading = {.count = 0}, memory = {.count = 0};
    int64_t depth = net->decoder.depth, size = 4 * starts[count] * net->dim;
    float *held[2][depth];
    for (int64_t n = 0; n < 2 * depth; n++) held[n / depth][n % depth] = take(&memory, size);
    Sources s = {ids, starts, count, out->memory, held[0], held[1]};
    int failed = memory.failed;
    if (!failed) read_all(net, &s, &reading);
    failed |= reading.failed;
    release(&reading);
    failed = failed || search(net, words, &s, wish, out, &memory);
    release(&memory);
    return failed;
}
