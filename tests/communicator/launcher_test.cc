// Ranks from the environment of each launcher.
#include "communicator/launcher.h"

#include <cstdlib>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "base/error.h"

namespace tutti {
namespace {

class Launcher : public ::testing::Test {
 protected:
  void set(const std::map<std::string, std::string>& variables) {
    for (const auto& [name, value] : variables) {
      ::setenv(name.c_str(), value.c_str(), 1);
      set_.push_back(name);
    }
  }
  void SetUp() override {
    for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "PMI_RANK",
                             "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"})
      ::unsetenv(name);
  }
  void TearDown() override {
    for (const std::string& name : set_) ::unsetenv(name.c_str());
  }
  std::string refusal() {
    try {
      launched_rank();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::invalid_usage);
      return error.what();
    }
    return "accepted";
  }

 private:
  std::vector<std::string> set_;
};

TEST_F(Launcher, TorchrunsVariablesAreTaken) {
  set({{"RANK", "3"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "1"}, {"MASTER_ADDR", "host-a"}, {"MASTER_PORT", "29500"}});
  const LaunchedRank found = launched_rank();
  EXPECT_EQ(found.rank, 3);
  EXPECT_EQ(found.size, 8);
  EXPECT_EQ(found.local_rank, 1);
  EXPECT_EQ(found.master_address, "host-a");
  EXPECT_EQ(found.master_port, 29500);
}

TEST_F(Launcher, EachSaysHowManyRanksItStartedHere) {
  EXPECT_EQ(launched_on_this_host(), 1);
  for (const char* variable : {"MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE", "LOCAL_WORLD_SIZE"}) {
    set({{variable, "6"}});
    EXPECT_EQ(launched_on_this_host(), 6);
    for (const char* wrong : {"", "0", "-3", "6x", "99999999999"}) {
      set({{variable, wrong}});
      EXPECT_EQ(launched_on_this_host(), 1) << variable << "=" << wrong;
    }
  }
}

TEST_F(Launcher, MpirunOnOneHostNeedsNoAddress) {
  set({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
       {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}, {"PMIX_NAMESPACE", "1234@1"}});
  const LaunchedRank found = launched_rank();
  EXPECT_EQ(found.rank, 1);
  EXPECT_EQ(found.master_address, "127.0.0.1");
  EXPECT_GE(found.master_port, 1024);
  set({{"PMIX_NAMESPACE", "1234@2"}});
  EXPECT_NE(launched_rank().job, found.job);
  set({{"OMPI_COMM_WORLD_SIZE", "4"}});
  EXPECT_NE(refusal().find("MASTER_ADDR is not set"), std::string::npos);
}

TEST_F(Launcher, MpichAndSlurmAreUnderstood) {
  set({{"SLURM_PROCID", "5"}, {"SLURM_NTASKS", "6"}, {"SLURM_NNODES", "1"}, {"SLURM_JOB_ID", "77"}});
  EXPECT_EQ(launched_rank().rank, 5);
  const std::string job = launched_rank().job;
  set({{"SLURM_STEP_ID", "1"}});
  EXPECT_NE(launched_rank().job, job);  // two sruns of one job at once
  set({{"PMI_RANK", "0"}, {"PMI_SIZE", "3"}});
  EXPECT_EQ(launched_rank().size, 3);
}

TEST_F(Launcher, WhatIsMissingOrMalformedIsNamed) {
  EXPECT_NE(refusal().find("RANK"), std::string::npos);
  set({{"RANK", "1"}});
  EXPECT_EQ(refusal(), "environment variable WORLD_SIZE is not set");
  set({{"WORLD_SIZE", "1"}});
  EXPECT_EQ(refusal(), "environment variable RANK=1 is not in 0 to 0");
  set({{"WORLD_SIZE", "two"}});
  EXPECT_EQ(refusal(), "environment variable WORLD_SIZE=two is not an integer");
  set({{"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}});
  EXPECT_EQ(refusal(), "environment variable MASTER_PORT is not set");
  set({{"MASTER_PORT", "70000"}});
  EXPECT_EQ(refusal(), "environment variable MASTER_PORT=70000 is not in 1 to 65535");
}

TEST_F(Launcher, TheJobKeyIsTheSecretWhereOneIsSet) {
  LaunchedRank launched;
  launched.job = "a";
  const Key from_job = job_key(launched);
  set({{"TUTTI_JOB_KEY", "secret"}});
  const Key from_secret = job_key(launched);
  EXPECT_NE(from_job, from_secret);
  launched.job = "b";
  EXPECT_EQ(job_key(launched), from_secret);
}

}  // namespace
}  // namespace tutti
