#include "plan.h"
void plan_svg(const struct plan_table *table, FILE *out){(void)table;(void)out;}
