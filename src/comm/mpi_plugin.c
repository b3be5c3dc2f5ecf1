/* The MPI plug-in (mpi_plugin.h). Plain MPI 3. */
#include "mpi_plugin.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

struct ingot_mpi_group {
  MPI_Comm communicator;
};

struct ingot_mpi_request {
  MPI_Request request;
};

static ingot_mpi_request* new_request(ingot_mpi_request** out) {
  *out = malloc(sizeof **out);
  if (*out != NULL) (*out)->request = MPI_REQUEST_NULL;
  return *out;
}

/* What was begun is kept when it went well. */
static int keep(int error, ingot_mpi_request** request) {
  if (error != MPI_SUCCESS) {
    free(*request);
    *request = NULL;
  }
  return error;
}

static int split(ingot_mpi_group* group, int color, int key, ingot_mpi_group** part) {
  *part = malloc(sizeof **part);
  if (*part == NULL) return MPI_ERR_NO_MEM;
  int error = MPI_Comm_split(group->communicator, color, key, &(*part)->communicator);
  if (error == MPI_SUCCESS) error = MPI_Comm_set_errhandler((*part)->communicator, MPI_ERRORS_RETURN);
  if (error != MPI_SUCCESS) {
    free(*part);
    *part = NULL;
  }
  return error;
}

static int place(ingot_mpi_group* group, int* rank, int* size) {
  const int error = MPI_Comm_rank(group->communicator, rank);
  return error != MPI_SUCCESS ? error : MPI_Comm_size(group->communicator, size);
}

static int all_to_all(ingot_mpi_group* group, const void* in, const int* in_counts, const int* in_at, void* out,
                      const int* out_counts, const int* out_at, ingot_mpi_request** request) {
  if (new_request(request) == NULL) return MPI_ERR_NO_MEM;
  return keep(MPI_Ialltoallv(in, in_counts, in_at, MPI_BYTE, out, out_counts, out_at, MPI_BYTE, group->communicator,
                             &(*request)->request),
              request);
}

static int all_gather(ingot_mpi_group* group, const void* in, int bytes, void* out, const int* counts, const int* at,
                      ingot_mpi_request** request) {
  if (new_request(request) == NULL) return MPI_ERR_NO_MEM;
  return keep(
      MPI_Iallgatherv(in, bytes, MPI_BYTE, out, counts, at, MPI_BYTE, group->communicator, &(*request)->request),
      request);
}

static int broadcast(ingot_mpi_group* group, void* data, int bytes, int root, ingot_mpi_request** request) {
  if (new_request(request) == NULL) return MPI_ERR_NO_MEM;
  return keep(MPI_Ibcast(data, bytes, MPI_BYTE, root, group->communicator, &(*request)->request), request);
}

static int barrier(ingot_mpi_group* group, ingot_mpi_request** request) {
  if (new_request(request) == NULL) return MPI_ERR_NO_MEM;
  return keep(MPI_Ibarrier(group->communicator, &(*request)->request), request);
}

static int send(ingot_mpi_group* group, const void* data, int bytes, int to, ingot_mpi_request** request) {
  if (new_request(request) == NULL) return MPI_ERR_NO_MEM;
  return keep(MPI_Isend(data, bytes, MPI_BYTE, to, 0, group->communicator, &(*request)->request), request);
}

static int receive(ingot_mpi_group* group, void* data, int bytes, int from_or_any, ingot_mpi_request** request) {
  if (new_request(request) == NULL) return MPI_ERR_NO_MEM;
  const int from = from_or_any == INGOT_MPI_ANY ? MPI_ANY_SOURCE : from_or_any;
  return keep(MPI_Irecv(data, bytes, MPI_BYTE, from, 0, group->communicator, &(*request)->request), request);
}

static int test(ingot_mpi_request* request, int* done) {
  const int error = MPI_Test(&request->request, done, MPI_STATUS_IGNORE);
  if (error != MPI_SUCCESS) *done = 0;
  if (*done) free(request);
  return error;
}

static int cancel(ingot_mpi_request* request) {
  int error = MPI_SUCCESS;
  if (request->request != MPI_REQUEST_NULL) error = MPI_Cancel(&request->request);
  if (error == MPI_SUCCESS) error = MPI_Wait(&request->request, MPI_STATUS_IGNORE);
  free(request);
  return error;
}

static void describe(int error, char* text, int size) {
  char message[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  if (MPI_Error_string(error, message, &length) != MPI_SUCCESS) length = 0;
  snprintf(text, (size_t)size, "%s", length > 0 ? message : "an error that MPI has no name for");
}

static void abort_all(int exit_code) { MPI_Abort(MPI_COMM_WORLD, exit_code); }

static int finalize(void) { return MPI_Finalize(); }

static ingot_mpi_group world_group;
static char library_version[MPI_MAX_LIBRARY_VERSION_STRING];

static ingot_mpi table = {
    .abi = INGOT_MPI_ABI,
    .library = library_version,
    .world = &world_group,
    .split = split,
    .place = place,
    .all_to_all = all_to_all,
    .all_gather = all_gather,
    .broadcast = broadcast,
    .barrier = barrier,
    .send = send,
    .receive = receive,
    .test = test,
    .cancel = cancel,
    .describe = describe,
    .finalize = finalize,
    .abort = abort_all,
};

static int open_world(void) {
  int provided = 0;
  int length = 0;
  MPI_Comm local;
  int error = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided);
  if (error == MPI_SUCCESS && provided < MPI_THREAD_FUNNELED) error = MPI_ERR_UNSUPPORTED_OPERATION;
  if (error == MPI_SUCCESS) error = MPI_Get_library_version(library_version, &length);
  if (error == MPI_SUCCESS) error = MPI_Comm_dup(MPI_COMM_WORLD, &world_group.communicator);
  if (error == MPI_SUCCESS) error = MPI_Comm_set_errhandler(world_group.communicator, MPI_ERRORS_RETURN);
  if (error == MPI_SUCCESS) error = MPI_Comm_rank(world_group.communicator, &table.rank);
  if (error == MPI_SUCCESS) error = MPI_Comm_size(world_group.communicator, &table.size);
  if (error == MPI_SUCCESS) {
    error = MPI_Comm_split_type(world_group.communicator, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &local);
  }
  if (error == MPI_SUCCESS) error = MPI_Comm_rank(local, &table.local_rank);
  if (error == MPI_SUCCESS) error = MPI_Comm_size(local, &table.local_size);
  if (error == MPI_SUCCESS) error = MPI_Comm_free(&local);
  return error;
}

const ingot_mpi* ingot_mpi_open(char* text, int size) {
  const int error = open_world();
  if (error == MPI_SUCCESS) return &table;
  describe(error, text, size);
  return NULL;
}
