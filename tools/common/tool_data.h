/* Where the files lie that come with the tools: configurations, models, clusters. */
#ifndef TOOL_DATA_H
#define TOOL_DATA_H

/* The path of `name` ("local.cfg", "models", "models/alexnet.cfg"), kept for the life of the
 * program. Looked for in $GF_DATA_DIR alone where that is set; else beside the program, installed
 * (../share/gradientflow) or built (../config), and then in ./config, which is also the answer
 * where it is in none of them, for the error to name. At most 8 names. */
const char *tool_data(const char *name);

/* A file that the user names: `given`, where it is there or has a folder; else folder/given or
 * folder/given.cfg of the files above ("h200" of "clusters"). `given` where there is neither. */
const char *tool_data_named(const char *folder, const char *given);

#endif
