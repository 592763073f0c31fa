/* A program that knows nothing of shared memory: sums a buffer of malloc, checks it, and says how many memory files of
 * libtutti_malloc.so it has mapped in the end. Its own buffers lie in one; another one is its peer's, read in place. So may
 * be what the library makes of a premulsum's input. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/tutti.h>

enum { n = 4 << 20 };

static int memory_files(void) {
  char line[512], files[16][32], name[32];
  int known = 0;
  FILE* const maps = fopen("/proc/self/maps", "r");
  while (maps != NULL && known < 16 && fgets(line, sizeof line, maps) != NULL) {
    if (strstr(line, "memfd:tutti-malloc") == NULL || sscanf(line, "%*s %*s %*s %*s %31s", name) != 1) continue;
    int is_new = 1;
    for (int i = 0; i < known; ++i) is_new = is_new && strcmp(files[i], name) != 0;
    if (is_new) strcpy(files[known++], name);
  }
  if (maps != NULL) fclose(maps);
  return known;
}

int main(void) {
  tuttiComm_t comm;
  int rank, ranks;
  if (tuttiCommInitEnv(&comm, NULL) != tuttiSuccess) {
    fprintf(stderr, "%s\n", tuttiGetLastError(NULL));
    return 1;
  }
  tuttiCommUserRank(comm, &rank);
  tuttiCommCount(comm, &ranks);
  float* const input = malloc(n * sizeof *input);
  float* const output = malloc(n * sizeof *output);
  const float scalar = (float)(rank + 2);
  tuttiRedOp_t multiplied;
  tuttiRedOpCreatePreMulSum(&multiplied, &scalar, tuttiFloat32, tuttiScalarHostImmediate, comm);
  for (int round = 0; round < 5; ++round) {
    for (int i = 0; i < n; ++i) input[i] = (float)(i % 1000 + rank + round);
    if (tuttiAllReduce(input, output, n, tuttiFloat32, tuttiSum, comm, NULL) != tuttiSuccess) {
      fprintf(stderr, "%s\n", tuttiGetLastError(comm));
      return 1;
    }
    for (int i = 0; i < n; ++i)
      if (output[i] != (float)(ranks * (i % 1000 + round) + ranks * (ranks - 1) / 2)) {
        fprintf(stderr, "rank %d, round %d: element %d is %g\n", rank, round, i, (double)output[i]);
        return 1;
      }
  }
  for (int round = 0; round < 5; ++round) {
    for (int i = 0; i < n; ++i) input[i] = (float)(i % 1000 + round);
    if (tuttiReduce(input, output, n, tuttiFloat32, multiplied, 0, comm, NULL) != tuttiSuccess) {
      fprintf(stderr, "%s\n", tuttiGetLastError(comm));
      return 1;
    }
    for (int i = 0; rank == 0 && i < n; ++i)
      if (output[i] != (float)((i % 1000 + round) * (ranks * (ranks + 3) / 2))) {
        fprintf(stderr, "premulsum, round %d: element %d is %g\n", round, i, (double)output[i]);
        return 1;
      }
  }
  printf("files %d\n", memory_files());
  free(input);
  free(output);
  tuttiCommDestroy(comm);
  return 0;
}
