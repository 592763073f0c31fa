/* A C99 program against the installed library: version, a communicator of one rank, an error that names its argument. */
#include <stdio.h>
#include <string.h>

#include <tutti/tutti.h>

int main(void) {
  tuttiUniqueId id;
  tuttiComm_t comm = NULL;
  int version = 0;
  float in[3] = {1, 2, 3}, out[3] = {0, 0, 0};
  if (tuttiGetVersion(&version) != tuttiSuccess || version != TUTTI_VERSION) return 1;
  if (tuttiGetUniqueId(&id) != tuttiSuccess) return 2;
  if (tuttiCommInitRank(&comm, 1, id, 0) != tuttiSuccess) return 3;
  if (tuttiAllReduce(in, out, 3, tuttiFloat32, tuttiSum, comm, NULL) != tuttiSuccess) return 4;
  if (memcmp(in, out, sizeof in) != 0) return 5;
  if (tuttiAllReduce(NULL, out, 3, tuttiFloat32, tuttiSum, comm, NULL) != tuttiInvalidArgument) return 6;
  if (strstr(tuttiGetLastError(comm), "sendbuff") == NULL) return 7;
  if (tuttiCommDestroy(comm) != tuttiSuccess) return 8;
  printf("tutti %d works\n", version);
  return 0;
}
