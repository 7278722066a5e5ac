#include "compiler/order/recipe_auto.h"

#include "program/times/costs_parts.h"

bool recipe_auto(const Item *item, const Costs *costs, Diagnostics *diagnostics, Schedule *schedule, RecipeFound *found)
{
    const uint32_t components = recipe_components_timed(costs);
    if (!components) {
        diag_error(diagnostics, item->span,
                   "`overlap F&B auto` needs the times of a layer's components, and none is given");
        const char *const cost = front_before(costs->front_end, SET_COST);
        diag_help(diagnostics,
                  "give them with %sattention.F=1,attention.B=1,attention.W=1,mlp.F=2,... or with %s@FILE and a file "
                  "of dprun --profile; or write the order: overlap F&B { compute: attention(F) mlp(B) ...; comm: ...; "
                  "}",
                  cost, cost);
        return false;
    }
    Recipe *const common = schedule->recipes.common;
    Costs own = *costs;
    own.layers = costs_layers(costs, schedule->pipes[0].stages);
    *found = recipe_shortest(components, common->share, common->whole, &own);
    *common = found->recipe;
    return true;
}
