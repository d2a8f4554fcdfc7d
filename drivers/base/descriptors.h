/* Descriptors 0, 1 and 2 belong to the program's streams, also where a program or who started it
 * has closed them: what the library opens would get these numbers, and the program's next printf()
 * would go into a connection of the job, or into the memory that ranks share. */
#ifndef GF_DESCRIPTORS_H
#define GF_DESCRIPTORS_H

/* Before the library, UCX or the CUDA driver open any: those of 0 to 2 that are closed are
 * /dev/null from here on.
 *
 * They stay it. To close them again would need to know that no other context and no thread of UCX's
 * or of the CUDA driver's opens one meanwhile, of which the library keeps no count, and that no
 * thread of the program has put a descriptor of its own there since, which the kernel does not
 * tell. A program that opens its streams later (dup2(), or close() and open()) replaces them as it
 * would replace any other. They are closed on exec: a child finds what it would have found. */
void gf_descriptors_hold(void);

/* What was opened, above 2; a number of 0 to 2, which the program has closed since it was held, is
 * free again. -1 is -1, with its errno; also where there is none above. */
int gf_descriptor_keep(int fd);

#endif
