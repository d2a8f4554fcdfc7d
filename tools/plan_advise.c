#include "plan.h"
int plan_advise(const struct plan_model *model, const struct gf_config_cluster *cluster, uint32_t gpus,
                const struct plan_choice *choice, const struct plan_cache *cache, const char *config_path)
{(void)model;(void)cluster;(void)gpus;(void)choice;(void)cache;(void)config_path; return 0;}
