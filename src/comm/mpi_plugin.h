/* What the MPI plug-in gives to the executable: MPI with the types of every MPI library taken out, so that one
 * executable runs under any. C, because the plug-in is built on the cluster by the site's own mpicc: mpicc -O2 -shared
 * -fPIC -o libingot-mpi.so mpi_plugin.c Everything is called from the thread that called ingot_mpi_open. Sizes are
 * bytes below 2^31. Functions return 0 or an MPI error code. */
#ifndef INGOT_COMM_MPI_PLUGIN_H
#define INGOT_COMM_MPI_PLUGIN_H

#ifdef __cplusplus
extern "C" {
#endif

enum { INGOT_MPI_ABI = 1, INGOT_MPI_ANY = -1 };

typedef struct ingot_mpi_group ingot_mpi_group;     /* a communicator */
typedef struct ingot_mpi_request ingot_mpi_request; /* a started operation; its memory stays valid until it is done */

typedef struct {
  int abi; /* INGOT_MPI_ABI of the plug-in; the other members are valid only if it equals the executable's */
  const char* library;        /* as the MPI library calls itself */
  int rank, size;             /* of all processes */
  int local_rank, local_size; /* among those that share this machine's memory */
  ingot_mpi_group* world;

  /* Collective: a group for each color, its ranks in the order of (key, rank). It is never freed. */
  int (*split)(ingot_mpi_group* group, int color, int key, ingot_mpi_group** part);
  int (*place)(ingot_mpi_group* group, int* rank, int* size);

  /* in_counts[s] bytes from in + in_at[s] on go to rank s, and out_counts[s] from it to out + out_at[s]. */
  int (*all_to_all)(ingot_mpi_group* group, const void* in, const int* in_counts, const int* in_at, void* out,
                    const int* out_counts, const int* out_at, ingot_mpi_request** request);
  int (*all_gather)(ingot_mpi_group* group, const void* in, int bytes, void* out, const int* counts, const int* at,
                    ingot_mpi_request** request);
  int (*broadcast)(ingot_mpi_group* group, void* data, int bytes, int root, ingot_mpi_request** request);
  int (*barrier)(ingot_mpi_group* group, ingot_mpi_request** request);
  int (*send)(ingot_mpi_group* group, const void* data, int bytes, int to, ingot_mpi_request** request);
  int (*receive)(ingot_mpi_group* group, void* data, int bytes, int from_or_any, ingot_mpi_request** request);
  /* Sets *done to whether the operation is complete. If so, and only then, the request is freed: after an error MPI may
     still use its memory. */
  int (*test)(ingot_mpi_request* request, int* done);
  /* Cancels a receive that has no matching send, or whose test failed, and frees the request. Other requests whose test
     failed are left: MPI cannot cancel collective operations. */
  int (*cancel)(ingot_mpi_request* request);

  void (*describe)(int error, char* text, int size);
  int (*finalize)(void);
  void (*abort)(int exit_code);
} ingot_mpi;

/* Initialises MPI. Null when that fails; `text` [size] then says why. */
const ingot_mpi* ingot_mpi_open(char* text, int size);
typedef const ingot_mpi* ingot_mpi_open_function(char* text, int size);

#ifdef __cplusplus
}
#endif

#endif
