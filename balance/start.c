#include "balance/domain.h"

#include <stdlib.h>

typedef struct Item {
    double share;
    uint32_t expert;
} Item;

static bool is_heavier(Item one, Item other)
{
    return one.share > other.share || (one.share == other.share && one.expert < other.expert);
}

/* --- counts: a heap with the largest share at the top --- */

static void sift_down(Item *heap, uint32_t size, uint32_t at)
{
    const Item item = heap[at];
    for (uint32_t child; (child = 2 * at + 1) < size; at = child) {
        if (child + 1 < size && is_heavier(heap[child + 1], heap[child]))
            child++;
        if (!is_heavier(heap[child], item))
            break;
        heap[at] = heap[child];
    }
    heap[at] = item;
}

/* Chooses the number of replicas of each expert: each further replica goes to the expert with the largest load per
   replica. If the experts suffice to fill all slots without an expert twice on a GPU, an expert gets at most as many
   replicas as there are GPUs. */
static void give_replicas(const Domain *domain, uint32_t *count, Arena *arena)
{
    Item *heap = arena_array(arena, domain->experts, sizeof *heap);
    const bool enough = (uint64_t)domain->experts * domain->gpus >= domain->slots;
    uint32_t size = domain->experts;
    for (uint32_t e = 0; e < size; e++) {
        heap[e] = (Item){domain->loads[e], e};
        count[e] = 1;
    }
    for (uint32_t at = size / 2; at-- > 0;)
        sift_down(heap, size, at);
    for (uint32_t left = domain->slots - domain->experts; left > 0;) {
        Item *top = &heap[0];
        if (enough && count[top->expert] == domain->gpus) {
            *top = heap[--size];
        } else {
            top->share = domain->loads[top->expert] / ++count[top->expert];
            left--;
        }
        sift_down(heap, size, 0);
    }
}

/* --- packing --- */

static int by_weight(const void *left, const void *right)
{
    return is_heavier(*(const Item *)left, *(const Item *)right) ? -1 : 1;
}

static Item *sorted_replicas(const Domain *domain, const uint32_t *count, Arena *arena)
{
    Item *experts = arena_array(arena, domain->experts, sizeof *experts);
    Item *items = arena_array(arena, domain->slots, sizeof *items), *next = items;
    for (uint32_t e = 0; e < domain->experts; e++)
        experts[e] = (Item){domain->loads[e] / count[e], e};
    qsort(experts, domain->experts, sizeof *experts, by_weight);
    for (uint32_t i = 0; i < domain->experts; i++)
        for (uint32_t r = 0; r < count[experts[i].expert]; r++)
            *next++ = experts[i];
    return items;
}

typedef struct Packing {
    const Domain *domain;
    Filling *filling;
    uint32_t *next; /* [gpus]: each GPU's first empty slot */
} Packing;

static bool holds(const Packing *packing, uint32_t gpu, uint32_t expert)
{
    for (uint32_t slot = packing->domain->first[gpu]; slot < packing->next[gpu]; slot++)
        if (packing->filling->expert[slot] == expert)
            return true;
    return false;
}

static void put(Packing *packing, uint32_t gpu, Item item)
{
    const uint32_t slot = packing->next[gpu]++;
    packing->filling->expert[slot] = item.expert;
    packing->filling->share[slot] = item.share;
    packing->filling->load[gpu] += item.share;
}

/* The least loaded of the GPUs that have an empty slot. If `other` is not NULL, GPUs that hold the expert of `other` do
   not count. Returns the number of GPUs if no GPU counts. */
static uint32_t lightest(const Packing *packing, const Item *other)
{
    const Domain *domain = packing->domain;
    const double *load = packing->filling->load;
    uint32_t found = domain->gpus;
    for (uint32_t g = 0; g < domain->gpus; g++)
        if (packing->next[g] < domain->first[g + 1] && (found == domain->gpus || load[g] < load[found]) &&
            !(other && holds(packing, g, other->expert)))
            found = g;
    return found;
}

/* Places an item whose expert is already on every GPU with an empty slot. A full GPU without that expert takes the
   item and gives one of its own items to GPU `open`, which has an empty slot and does not hold that item's expert.
   False: no such exchange exists. */
static bool put_in_exchange(Packing *packing, uint32_t open, Item item)
{
    const Domain *domain = packing->domain;
    Filling *filling = packing->filling;
    for (uint32_t g = 0; g < domain->gpus; g++)
        for (uint32_t slot = domain->first[g]; !holds(packing, g, item.expert) && slot < packing->next[g]; slot++)
            if (!holds(packing, open, filling->expert[slot])) {
                put(packing, open, (Item){filling->share[slot], filling->expert[slot]});
                filling->load[g] += item.share - filling->share[slot];
                filling->expert[slot] = item.expert;
                filling->share[slot] = item.share;
                return true;
            }
    return false;
}

void filling_start(const Domain *domain, Filling *filling, Arena *arena)
{
    Packing packing = {domain, filling, arena_array(arena, domain->gpus, sizeof(uint32_t))};
    give_replicas(domain, filling->count, arena);
    const Item *items = sorted_replicas(domain, filling->count, arena);
    for (uint32_t g = 0; g < domain->gpus; g++) {
        packing.next[g] = domain->first[g];
        filling->load[g] = 0;
    }
    for (uint32_t i = 0; i < domain->slots; i++) {
        const bool single = filling->count[items[i].expert] == 1;
        uint32_t gpu = lightest(&packing, single ? NULL : &items[i]);
        if (gpu == domain->gpus) {
            gpu = lightest(&packing, NULL);
            if (put_in_exchange(&packing, gpu, items[i]))
                continue;
        }
        put(&packing, gpu, items[i]);
    }
    filling_update(domain, filling);
}
