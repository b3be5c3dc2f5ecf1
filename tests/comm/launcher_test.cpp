#include "comm/launcher.h"

#include <gtest/gtest.h>

#include <map>

#include "base/error.h"

namespace ingot::comm {
namespace {

std::optional<Launch> found(const std::map<std::string, std::string>& environment) {
  return find_launch([&](const char* name) -> const char* {
    const auto place = environment.find(name);
    return place == environment.end() ? nullptr : place->second.c_str();
  });
}

TEST(Launcher, ASingleProcessHasNoLauncher) {
  EXPECT_FALSE(found({}));
  EXPECT_FALSE(found({{"OMPI_COMM_WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_RANK", "0"}}));
  EXPECT_FALSE(found({{"PMI_SIZE", "1"}, {"PMI_RANK", "0"}}));
  // A SLURM batch script, outside any step.
  EXPECT_FALSE(found({{"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "0"}, {"SLURM_JOB_ID", "7"}}));
}

TEST(Launcher, EveryLauncherIsDetected) {
  const std::optional<Launch> open_mpi = found({{"OMPI_COMM_WORLD_SIZE", "3"}, {"OMPI_COMM_WORLD_RANK", "2"}});
  ASSERT_TRUE(open_mpi);
  EXPECT_EQ(open_mpi->launcher, "mpirun");
  EXPECT_EQ(open_mpi->size, 3);
  const std::optional<Launch> hydra = found({{"PMI_SIZE", "4"}, {"PMI_RANK", "0"}});
  ASSERT_TRUE(hydra);
  EXPECT_EQ(hydra->size, 4);
  const std::optional<Launch> srun =
      found({{"SLURM_STEP_NUM_TASKS", "16"}, {"SLURM_STEP_ID", "0"}, {"PMIX_RANK", "3"}});
  ASSERT_TRUE(srun);
  EXPECT_EQ(srun->launcher, "srun");
  EXPECT_EQ(srun->size, 16);
}

TEST(Launcher, MpirunInsideASlurmAllocationIsNotASlurmStep) {
  const std::optional<Launch> launch = found({{"SLURM_STEP_NUM_TASKS", "2"},
                                              {"SLURM_STEP_ID", "0"},
                                              {"OMPI_COMM_WORLD_SIZE", "8"},
                                              {"OMPI_COMM_WORLD_RANK", "5"}});
  ASSERT_TRUE(launch);
  EXPECT_EQ(launch->launcher, "mpirun");
  EXPECT_EQ(launch->size, 8);
}

TEST(Launcher, InvalidNumbersAreErrors) {
  for (const char* text : {"", "two", "2x", "0", "-3"}) {
    try {
      found({{"PMI_SIZE", text}, {"PMI_RANK", "0"}});
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      EXPECT_NE(error.message().find("PMI_SIZE"), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace ingot::comm
