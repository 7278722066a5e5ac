#include "compiler/prove/channels.h"

#include <string.h>

enum { TEXT = 48 };

const char *const channel_names[CHANNEL_MODELS] = {"rendezvous", "rank", "pair", "edge", "kind"};
const char *const channel_words[CHANNEL_MODELS] = {
    "nothing more than sends that wait for their receives",
    "sends that do not wait for their receives",
    "a communicator for each pair of ranks",
    "a communicator for each directed pair of ranks, as torch makes with pipeline_per_edge_p2p",
    "communicators or tags that keep gradients apart from activations in each directed pair of ranks",
};
const char *const safety_names[] = {"safe", "swaps", "deadlocks"};

/* The queues of a rank. Queue 0 has its passes; under CHANNELS_RENDEZVOUS it has everything. */
typedef struct Queues {
    uint32_t *queue; /* [position]: the queue of each action */
    uint32_t *next;  /* [position]: the action after it in this queue; the order's count: none */
    uint32_t *head;  /* [count]: the first action of each queue that has not run; the order's count: all have */
    uint32_t count;
    uint32_t node; /* of queue 0: the queues of all ranks are numbered, for deadlock_cycle */
} Queues;

typedef struct Walk {
    const Schedule *schedule;
    const PassTable *table;
    Queues *ranks;
    uint32_t *awake, awake_count; /* a stack of the ranks that may be able to go on */
    bool *is_awake;               /* [rank] */
} Walk;

/* Messages with the same key share a queue. Keys are at most 4 * ranks; passes have the key 0. */
static uint32_t key_of(Channels channels, const Action *action)
{
    if (!action_is_message(action) || channels == CHANNELS_RENDEZVOUS)
        return 0;
    const uint32_t peer = 4u * action->peer, sends = action_is_send(action) ? 2 : 0;
    switch (channels) {
    case CHANNELS_PAIR: return 1 + peer;
    case CHANNELS_EDGE: return 1 + peer + sends;
    case CHANNELS_KIND: return 1 + peer + sends + action_is_gradient(action);
    default: return 1;
    }
}

/* --- swaps --- */

/* The position, in the order of rank `from`, of its message `number`, from 0, with this key. There must be one. */
static uint32_t message_at(const Schedule *schedule, uint32_t from, Channels channels, uint32_t key, uint32_t number)
{
    uint32_t position = 0;
    while (key_of(channels, &schedule->orders[from].actions[position]) != key || number-- > 0)
        position++;
    return position;
}

ChannelVerdict channels_swap(const Schedule *schedule, const PassTable *table, Channels channels, Arena *arena)
{
    const Channels ends = channels == CHANNELS_KIND ? CHANNELS_KIND : CHANNELS_EDGE;
    /* [rank][position] of a SEND: how many messages come before it in its channel. The second round counts the RECVs
       in the same way, and compares the two numbers of each message. */
    uint32_t **number = arena_array(arena, schedule->ranks, sizeof *number);
    uint32_t *counts = arena_array(arena, 4 * (size_t)schedule->ranks + 1, sizeof *counts);
    for (int receiving = 0; receiving < 2; receiving++)
        for (uint32_t r = 0; r < schedule->ranks; r++) {
            const Order *order = &schedule->orders[r];
            memset(counts, 0, (4 * (size_t)schedule->ranks + 1) * sizeof *counts);
            if (!receiving)
                number[r] = arena_array(arena, order->count, sizeof **number);
            for (uint32_t i = 0; i < order->count; i++) {
                const Action *action = &order->actions[i];
                if (!action_is_message(action) || action_is_send(action) == receiving)
                    continue;
                const uint32_t before = counts[key_of(ends, action)]++;
                if (!receiving) {
                    number[r][i] = before;
                    continue;
                }
                const uint32_t sent = table->ends[r][i], peer = action->peer;
                if (number[peer][sent] == before)
                    continue;
                const uint32_t key = key_of(ends, &schedule->orders[peer].actions[sent]);
                return (ChannelVerdict){SWAPS,      peer,           message_at(schedule, peer, ends, key, before), r, i,
                                        before + 1, .deadlock = {0}};
            }
        }
    return (ChannelVerdict){.safety = SAFE};
}

/* --- the walk --- */

/* number, last: room for 4 * ranks + 1 */
static Queues queues_of(const Schedule *schedule, uint32_t rank, Channels channels, uint32_t *number, uint32_t *last,
                        Arena *arena)
{
    const Order *order = &schedule->orders[rank];
    const size_t keys = 4 * (size_t)schedule->ranks + 1;
    Queues made = {.queue = arena_array(arena, order->count, sizeof *made.queue),
                   .next = arena_array(arena, order->count, sizeof *made.next),
                   .head = arena_array(arena, order->count + 1 < keys ? order->count + 1 : keys, sizeof *made.head),
                   .count = 1};
    memset(number, 0, keys * sizeof *number); /* [key]: 1 + the queue; 0: none yet */
    memset(last, 0, keys * sizeof *last);     /* [queue]: 1 + its last action so far; 0: none yet */
    number[0] = 1;
    made.head[0] = order->count;
    for (uint32_t i = 0; i < order->count; i++) {
        uint32_t *of = &number[key_of(channels, &order->actions[i])];
        if (!*of)
            *of = ++made.count;
        const uint32_t queue = made.queue[i] = *of - 1;
        *(last[queue] ? &made.next[last[queue] - 1] : &made.head[queue]) = i;
        made.next[i] = order->count;
        last[queue] = i + 1;
    }
    return made;
}

/* What an action that is first in its queue needs of another action. */
typedef struct Need {
    enum { FIRST, DONE, PASSES } what; /* first in its queue, or done; done; the passes before it are done */
    uint32_t rank, position;
} Need;

static bool is_met(const Walk *walk, const Need *need)
{
    const Queues *of = &walk->ranks[need->rank];
    const uint32_t head = of->head[need->what == PASSES ? 0 : of->queue[need->position]];
    return need->what == DONE ? head > need->position : head >= need->position;
}

/* The SENDs that WAIT_SENDs before an action wait for: their number, and the i-th. */
static uint32_t wait_count(const Walk *walk, uint32_t rank, uint32_t position)
{
    const SendWaits *waits = walk->schedule->send_waits;
    return waits ? waits[rank].to[position] - waits[rank].from[position] : 0;
}

static bool wait_of(const Walk *walk, uint32_t rank, uint32_t position, uint32_t i, Need *need)
{
    if (i >= wait_count(walk, rank, position))
        return false;
    const SendWaits *waits = &walk->schedule->send_waits[rank];
    *need = (Need){DONE, rank, waits->sends[waits->from[position] + i]};
    return true;
}

/* The i-th thing that an action needs. False: there is no i-th. */
static bool need_of(const Walk *walk, uint32_t rank, uint32_t position, uint32_t i, Need *need)
{
    const Action *action = &walk->schedule->orders[rank].actions[position];
    const uint32_t *ends = walk->table->ends[rank];
    if (action->kind == ACTION_U) {
        Dependence there;
        if (!pass_meets(walk->schedule, walk->table, action, i, &there))
            return false;
        *need = (Need){FIRST, there.rank, there.position};
        return true;
    }
    if (action_is_message(action) && i < 2) {
        const bool passes = i == 1, mine = passes && action_is_send(action);
        *need = (Need){passes ? PASSES : FIRST, mine ? rank : action->peer, mine ? position : ends[position]};
        return true;
    }
    if (action_is_message(action)) {
        const uint32_t mine = wait_count(walk, rank, position);
        return i - 2 < mine ? wait_of(walk, rank, position, i - 2, need)
                            : wait_of(walk, action->peer, ends[position], i - 2 - mine, need);
    }
    /* The halves of an F&B or F&F may be taken one by one: the sends of the first come after the second, too. */
    const bool received = ends[position] != POSITION_NONE;
    if (i >= received)
        return wait_of(walk, rank, position, i - received, need);
    *need = (Need){DONE, rank, ends[position]};
    return true;
}

static void wake(Walk *walk, uint32_t rank)
{
    if (!walk->is_awake[rank])
        walk->awake[walk->awake_count++] = rank;
    walk->is_awake[rank] = true;
}

/* Ends the first action of a queue. A U that comes next may be the last that others wait for. */
static void advance(Walk *walk, uint32_t rank, uint32_t queue)
{
    Queues *of = &walk->ranks[rank];
    const Order *order = &walk->schedule->orders[rank];
    const uint32_t head = of->head[queue] = of->next[of->head[queue]];
    Dependence there;
    for (uint32_t i = 0;
         head < order->count && pass_meets(walk->schedule, walk->table, &order->actions[head], i, &there); i++)
        wake(walk, there.rank);
}

/* Runs the first action of a queue, a message with its other end. False: it has to wait, or there is none. */
static bool step(Walk *walk, uint32_t rank, uint32_t queue)
{
    const uint32_t position = walk->ranks[rank].head[queue];
    const Order *order = &walk->schedule->orders[rank];
    if (position == order->count)
        return false;
    Need need;
    for (uint32_t i = 0; need_of(walk, rank, position, i, &need); i++)
        if (!is_met(walk, &need))
            return false;
    advance(walk, rank, queue);
    const Action *action = &order->actions[position];
    if (action_is_message(action)) {
        advance(walk, action->peer, walk->ranks[action->peer].queue[walk->table->ends[rank][position]]);
        wake(walk, action->peer);
    }
    return true;
}

static void run(Walk *walk)
{
    for (uint32_t r = walk->schedule->ranks; r-- > 0;)
        wake(walk, r);
    while (walk->awake_count) {
        const uint32_t rank = walk->awake[--walk->awake_count];
        walk->is_awake[rank] = false;
        for (bool moved = true; moved;) {
            moved = false;
            for (uint32_t q = 0; q < walk->ranks[rank].count; q++)
                while (step(walk, rank, q))
                    moved = true;
        }
    }
}

/* --- why it ends --- */

/* What the first action of a queue waits for; the numbers of ranks are those of queues. NULL: the queue is empty. */
static WaitList *waits_of(const Walk *walk, uint32_t rank, uint32_t queue, Arena *arena)
{
    const Queues *of = &walk->ranks[rank];
    const uint32_t position = of->head[queue];
    if (position == walk->schedule->orders[rank].count)
        return NULL;
    WaitList *list = arena_allocate(arena, sizeof *list);
    Need need;
    for (uint32_t i = 0; need_of(walk, rank, position, i, &need); i++) {
        const Queues *on = &walk->ranks[need.rank];
        if (is_met(walk, &need))
            continue;
        while (need.what == PASSES && on->queue[need.position])
            need.position--;
        list->waits = arena_extend(arena, list->waits, list->count, sizeof *list->waits);
        list->waits[list->count++] =
            (Wait){of->node + queue, position, on->node + on->queue[need.position], need.position};
    }
    return list;
}

static uint32_t rank_of(const Walk *walk, uint32_t node)
{
    uint32_t rank = walk->schedule->ranks - 1;
    while (walk->ranks[rank].node > node)
        rank--;
    return rank;
}

static void find_cycle(const Walk *walk, uint32_t nodes, Arena *arena, Deadlock *deadlock)
{
    WaitList **lists = arena_array(arena, nodes, sizeof *lists);
    for (uint32_t r = 0; r < walk->schedule->ranks; r++)
        for (uint32_t q = 0; q < walk->ranks[r].count; q++)
            lists[walk->ranks[r].node + q] = waits_of(walk, r, q, arena);
    deadlock_cycle(lists, nodes, arena, deadlock);
    for (uint32_t i = 0; i < deadlock->cycle; i++) {
        deadlock->waits[i].rank = rank_of(walk, deadlock->waits[i].rank);
        deadlock->waits[i].on = rank_of(walk, deadlock->waits[i].on);
    }
}

ChannelVerdict channels_judge(const Schedule *schedule, const PassTable *table, Channels channels, Arena *arena)
{
    const uint32_t ranks = schedule->ranks;
    const size_t keys = 4 * (size_t)ranks + 1;
    ChannelVerdict verdict = channels_swap(schedule, table, channels, arena);
    if (verdict.safety == SWAPS)
        return verdict;
    Walk walk = {.schedule = schedule,
                 .table = table,
                 .ranks = arena_array(arena, ranks, sizeof *walk.ranks),
                 .awake = arena_array(arena, ranks, sizeof *walk.awake),
                 .is_awake = arena_array(arena, ranks, sizeof *walk.is_awake)};
    uint32_t *number = arena_array(arena, keys, sizeof *number), *last = arena_array(arena, keys, sizeof *last);
    uint32_t nodes = 0;
    bool ended = true;
    for (uint32_t r = 0; r < ranks; r++) {
        walk.ranks[r] = queues_of(schedule, r, channels, number, last, arena);
        walk.ranks[r].node = nodes;
        nodes += walk.ranks[r].count;
    }
    run(&walk);
    for (uint32_t r = 0; r < ranks; r++)
        for (uint32_t q = 0; q < walk.ranks[r].count; q++)
            ended = ended && walk.ranks[r].head[q] == schedule->orders[r].count;
    if (!ended) {
        verdict.safety = DEADLOCKS;
        find_cycle(&walk, nodes, arena, &verdict.deadlock);
    }
    return verdict;
}

Channels channels_judge_all(const Schedule *schedule, const PassTable *table, Arena *arena, ChannelVerdict *verdicts)
{
    Channels safe = 0;
    while (safe < CHANNEL_MODELS && (verdicts[safe] = channels_judge(schedule, table, safe, arena)).safety != SAFE)
        safe++;
    for (Channels weaker = safe; weaker < CHANNEL_MODELS; weaker++)
        verdicts[weaker] = verdicts[safe];
    return safe;
}

const char *channel_verdict_text(const Schedule *schedule, const ChannelVerdict *verdict, Arena *arena)
{
    char here[TEXT], there[TEXT];
    if (verdict->safety == SWAPS) {
        const Action *sent = &schedule->orders[verdict->sender].actions[verdict->sent];
        const Action *received = &schedule->orders[verdict->receiver].actions[verdict->received];
        action_text(schedule, sent, here, sizeof here);
        action_text(schedule, received, there, sizeof there);
        return arena_format(arena, "message %u from rank %u to rank %u is sent as %s (%s), but received as %s (%s)",
                            verdict->number, verdict->sender, verdict->receiver, here,
                            action_is_gradient(sent) ? "a gradient" : "activations", there,
                            action_is_gradient(received) ? "a gradient" : "activations");
    }
    const char *text = "";
    for (uint32_t i = 0; i < verdict->deadlock.cycle; i++) {
        const Wait *wait = &verdict->deadlock.waits[i];
        action_text(schedule, &schedule->orders[wait->rank].actions[wait->at], here, sizeof here);
        action_text(schedule, &schedule->orders[wait->on].actions[wait->until], there, sizeof there);
        text = arena_format(arena, "%s%srank %u at %s waits for %s of rank %u", text, i ? "; " : "", wait->rank, here,
                            there, wait->on);
    }
    return text;
}
