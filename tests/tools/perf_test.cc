// The parts of tutti-perf that need no ranks: options, cases, exact data, the forms of the results.
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>

#include <gtest/gtest.h>

#include "bench/perf/options.h"
#include "bench/perf/pattern.h"
#include "bench/perf/report.h"

namespace tutti::perf {
namespace {

Options parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "tutti-perf");
  std::string text;
  return parse_options(int(arguments.size()), arguments.data(), text).value();
}

std::string complaint_about(const std::vector<const char*>& arguments) {
  try {
    parse(arguments);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(Options, UnderstandsNcclTestsCommandLine) {
  const Options o = parse({"all_reduce", "-b", "8", "-e", "1G", "-f", "4", "-n", "7", "-w", "3", "-d", "half", "-o",
                           "max", "-c", "0", "-g", "1", "-p", "1", "-z", "1", "-t", "2", "-G", "0"});
  EXPECT_EQ(o.min_bytes, 8u);
  EXPECT_EQ(o.max_bytes, size_t{1} << 30);
  EXPECT_EQ(o.factor, 4u);
  EXPECT_EQ(o.iterations, 7);
  EXPECT_EQ(o.warmup, 3);
  EXPECT_EQ(o.checks, 0);
  EXPECT_EQ(o.threads, 2);
  EXPECT_EQ(o.types.at(0).type, tuttiFloat16);
  EXPECT_EQ(o.operators.at(0).op, tuttiMax);
  EXPECT_TRUE(o.blocking);
}

TEST(Options, KnowsBothNamesOfATypeAndAll) {
  EXPECT_EQ(parse({"broadcast", "-d", "float32"}).types.at(0).name, "float");
  EXPECT_EQ(parse({"broadcast", "-d", "fp8_e4m3"}).types.at(0).type, tuttiFloat8e4m3);
  EXPECT_EQ(parse({"broadcast", "-d", "all"}).types.size(), 21u);
  EXPECT_EQ(parse({"all_reduce", "-o", "all"}).operators.size(), 13u);
  EXPECT_EQ(parse({"broadcast", "-r", "all"}).root, -1);
}

TEST(Options, NamesWhatIsWrong) {
  const std::map<std::vector<const char*>, std::string> cases = {
      {{"all_scatter"}, "collective all_scatter"},
      {{"all_reduce", "-b", "x"}, "-b x: not a size"},
      {{"all_reduce", "-b", "1M", "-e", "1K"}, "-b 1M: greater"},
      {{"all_reduce", "-n", "0"}, "-n 0: must be between"},
      {{"all_reduce", "-n", "1.5"}, "-n 1.5: not a whole number"},
      {{"all_reduce", "-f", "1"}, "-f 1: must be"},
      {{"all_reduce", "-i", "8", "-f", "2"}, "-i 8: sizes grow"},
      {{"all_reduce", "-d", "float31"}, "-d float31: none of int8, uint8"},
      {{"all_reduce", "-o", "mul"}, "-o mul: none of sum, prod"},
      {{"all_reduce", "-g", "2"}, "-g 2: use -t for several ranks in a process"},
      {{"all_reduce", "-G", "3"}, "-G 3: "},
      {{"all_reduce", "-t", "0"}, "-t 0: must be"},
      {{"all_reduce", "--sizes", "8,,9"}, "--sizes : not a size"},
      {{"all_reduce", "--sizes", "8", "-b", "9"}, "-b 9: --sizes names"},
      {{"all_reduce", "--nonsense"}, "--nonsense"},
      {{}, "collective is required"},
  };
  for (const auto& [arguments, words] : cases) {
    const std::string complaint = complaint_about(arguments);
    EXPECT_NE(complaint.find(words), std::string::npos) << words << " / " << complaint;
  }
}

TEST(Cases, GrowByAFactorOrAStepInWholeElements) {
  const auto sizes = [](const std::vector<const char*>& arguments) {
    std::vector<size_t> result;
    for (const Case& one : make_cases(parse(arguments), 4)) result.push_back(one.bytes);
    return result;
  };
  EXPECT_EQ(sizes({"all_reduce", "-b", "8", "-e", "64"}), (std::vector<size_t>{8, 16, 32, 64}));
  EXPECT_EQ(sizes({"all_reduce", "-b", "4", "-e", "16", "-i", "5"}), (std::vector<size_t>{4, 8, 12}));
  EXPECT_EQ(sizes({"all_reduce", "-b", "0", "-e", "16"}), (std::vector<size_t>{0, 4, 8, 16}));
  EXPECT_EQ(sizes({"all_reduce", "-b", "1K", "-e", "1K"}), (std::vector<size_t>{1024}));
  EXPECT_EQ(sizes({"all_reduce", "--sizes", "1M,8,30"}), (std::vector<size_t>{1 << 20, 8, 28}));
  EXPECT_EQ(make_cases(parse({"barrier"}), 4).size(), 1u);
}

TEST(Cases, CoverTypesOperatorsAndRoots) {
  EXPECT_EQ(make_cases(parse({"all_reduce", "-b", "8", "-e", "8", "-d", "all", "-o", "all"}), 4).size(), 149u);
  EXPECT_THROW(make_cases(parse({"all_reduce", "-d", "float", "-o", "band"}), 4), UsageError);
  EXPECT_EQ(make_cases(parse({"broadcast", "-b", "8", "-e", "8", "-r", "all"}), 4).size(), 4u);
  EXPECT_THROW(make_cases(parse({"broadcast", "-r", "4"}), 4), UsageError);
  // A size is that of all ranks' blocks together, cut to whole elements for each.
  const Case blocks = make_cases(parse({"alltoall", "-b", "100", "-e", "100", "-d", "float"}), 4).at(0);
  EXPECT_EQ(blocks.count, 6u);
  EXPECT_EQ(blocks.bytes, 96u);
  EXPECT_EQ(parse({"all_to_all"}).operation, Operation::alltoall);
}

// What an element, or the first part of one, is worth; a decoder that shares nothing with encode().
double decode(const Type& whole, const std::byte* element) {
  Type type = whole;
  type.bytes = whole.part_bytes();
  uint64_t bits = 0;
  std::memcpy(&bits, element, type.bytes);
  if (type.mantissa_bits == 0) {
    if (!type.is_signed || type.bytes == 8) return double(int64_t(bits));
    const uint64_t sign = uint64_t{1} << (type.bytes * 8 - 1);
    return double(int64_t(bits ^ sign) - int64_t(sign));
  }
  const uint64_t exponent = bits >> type.mantissa_bits & ((uint64_t{1} << type.exponent_bits) - 1);
  const double mantissa = double(bits & ((uint64_t{1} << type.mantissa_bits) - 1)) * std::exp2(-type.mantissa_bits);
  const int bias = (1 << (type.exponent_bits - 1)) - 1;
  const double size = exponent == 0 ? 0 : (1 + mantissa) * std::exp2(double(exponent) - bias);
  return (bits >> (type.bytes * 8 - 1)) != 0 ? -size : size;
}

TEST(Pattern, EncodesWholeNumbers) {
  for (const Type& type : all_types())
    for (int64_t value = type.is_signed ? -8 : 0; value <= (type.type == tuttiBool ? 1 : 8); ++value) {
      std::byte element[16]{};
      encode(type, value, 3, element);
      EXPECT_EQ(decode(type, element), double(value)) << type.name;
    }
}

// In double, which holds all of it exactly, and in two orders: no rounding happens in any type that holds the values.
TEST(Pattern, ReductionsAreExactInEveryTypeAndOrder) {
  for (const Type& type : all_types())
    for (const Operator& op : all_operators())
      for (const int ranks : {1, 2, 3, 4, 5, 7, 8, 9, 16, 33, 64}) {
        if (!defined(op, type)) continue;
        std::vector<Period> inputs;
        for (int r = 0; r < ranks; ++r) inputs.push_back(input_period(type, op, ranks, r, 5));
        const Period expected = reduced_period(type, op, ranks, 5);
        for (size_t i = 0; i < period; i += 13) {
          const auto operand = [&](int rank) {
            const double given = decode(type, &inputs[size_t(rank)][i * type.bytes]);
            return op.op == mul_sum ? given * double(multiplier(rank)) : given;
          };
          double value = operand(0), peak = std::abs(value);
          for (int r = 1; r < ranks; ++r) {
            const double other = operand(r);
            const auto bits = [](double x) { return int64_t(x); };
            if (op.op == tuttiMax || op.op == tuttiMaxloc) value = std::max(value, other);
            else if (op.op == tuttiMin || op.op == tuttiMinloc) value = std::min(value, other);
            else if (op.op == tuttiProd) value *= other;
            else if (op.op == tuttiBand) value = double(bits(value) & bits(other));
            else if (op.op == tuttiBor) value = double(bits(value) | bits(other));
            else if (op.op == tuttiBxor) value = double(bits(value) ^ bits(other));
            else if (op.op == tuttiLand) value = value != 0 && other != 0;
            else if (op.op == tuttiLor) value = value != 0 || other != 0;
            else value += other, peak += std::abs(other);
          }
          if (type.type == tuttiBool || op.op == tuttiLand || op.op == tuttiLor) value = value != 0;
          if (op.op == tuttiAvg) {
            if (type.mantissa_bits > 0) {
              EXPECT_EQ(std::fmod(value, ranks), 0);
            }
            value = std::trunc(value / ranks);
          }
          if (type.mantissa_bits > 0 && op.op != tuttiProd) {
            EXPECT_LE(peak, std::exp2(type.mantissa_bits + 1));
          }
          EXPECT_EQ(decode(type, &expected[i * type.bytes]), value) << type.name << op.name << ranks << " at " << i;
        }
      }
}

TEST(Pattern, DiffersByRankIndexAndRun) {
  const Type type = all_types()[7];
  const Operator sum = all_operators()[0];
  EXPECT_NE(input_period(type, sum, 4, 0, 1), input_period(type, sum, 4, 1, 1));
  EXPECT_NE(input_period(type, sum, 4, 0, 1), input_period(type, sum, 4, 0, 2));
  EXPECT_NE(reduced_period(type, sum, 4, 1), reduced_period(type, sum, 4, 2));
  const Period one = input_period(type, sum, 4, 0, 1);
  EXPECT_NE(std::memcmp(&one[0], &one[256], 256), 0);
}

TEST(Pattern, CountsWrongElementsAndTouchedBytes) {
  const Type type = all_types()[2];
  const Period data = input_period(type, std::nullopt, 2, 0, 3);
  WatchedBuffer buffer(100'000);
  fill(buffer.use(50'000), data);
  EXPECT_EQ(count_wrong(buffer.look(), data, 4), 0u);
  EXPECT_EQ(buffer.count_touched(), 0u);
  std::byte* bytes = const_cast<std::byte*>(buffer.look().data());
  bytes[4] ^= std::byte{1}, bytes[5] ^= std::byte{1}, bytes[49'999] ^= std::byte{1};
  EXPECT_EQ(count_wrong(buffer.look(), data, 4), 2u);
  bytes[50'000] ^= std::byte{1}, bytes[-1] ^= std::byte{1};
  EXPECT_EQ(buffer.count_touched(), 2u);
}

TEST(Report, RatesAsNcclTestsDo) {
  Result result{.present = true, .time_us = 1000};
  rate(result, Operation::all_reduce, 4'000'000, 4);
  EXPECT_DOUBLE_EQ(result.algorithm_gbps, 4);
  EXPECT_DOUBLE_EQ(result.bus_gbps, 6);
  rate(result, Operation::broadcast, 4'000'000, 4);
  EXPECT_DOUBLE_EQ(result.bus_gbps, 4);
  for (const Operation blocks : {Operation::all_gather, Operation::reduce_scatter, Operation::gather,
                                 Operation::scatter, Operation::alltoall})
    EXPECT_DOUBLE_EQ(bus_factor(blocks, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Operation::reduce, 4), 1);
  EXPECT_EQ(percentile({1, 2, 3, 4}, 0.5), 2);
  EXPECT_EQ(percentile({1, 2, 3, 4}, 0.99), 4);
}

TEST(Report, ColumnsStandUnderTheirHeadings) {
  for (const bool percentiles : {false, true}) {
    Options options = parse({"all_reduce"});
    options.percentiles = percentiles;
    Row row{{1024, 256, all_types()[7], all_operators()[0], -1}, "ring", 20, {true, 12.3456, 1, 2, 0}, {}};
    std::istringstream lines(heading_text(options, {.ranks = 2}));
    std::string line, heading;
    while (std::getline(lines, line))
      if (line.find("redop") != std::string::npos) heading = line;
    const std::string text = row_text(options, row);
    EXPECT_EQ(heading.find("algorithm"), text.find("ring")) << heading << "\n" << text;
    EXPECT_EQ(heading.find("#wrong") + 6, text.find(" 0 ") + 2) << heading << "\n" << text;
  }
}

TEST(Report, SumsUp) {
  std::vector<Row> rows(2);
  rows[0].out_of_place = {true, 1, 2, 3, 5};
  rows[1].in_place = {true, 1, 2, 5, 0};
  EXPECT_EQ(total_wrong(rows), 5);
  EXPECT_EQ(summary_text(rows), "# Out of bounds values : 5 FAILED\n# Avg bus bandwidth    : 4.0000\n");
}

TEST(Report, RefusesAFileThatCannotBeWritten) {
  try {
    write_file("/no/such/folder/x", "text");
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "cannot write /no/such/folder/x: No such file or directory");
  }
}

}  // namespace
}  // namespace tutti::perf
