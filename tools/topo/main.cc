// tutti-topo: shows this host, or one from a file, as text, JSON, hwloc XML or a drawing.
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/error.h"
#include "tools/topo/json.h"
#include "topology/draw.h"
#include "topology/text.h"
#include "topology/topology.h"

namespace tutti {
namespace {

constexpr int exit_failed = 1;     // this machine refused
constexpr int exit_arguments = 2;  // an argument cannot be what it is

struct Arguments {
  std::string load;
  std::string svg;
  bool json = false;
  bool xml = false;
};

void declare(CLI::App& app, Arguments& arguments) {
  app.add_option("--load", arguments.load, "Show the machine in this hwloc XML file instead of this host")
      ->type_name("FILE.xml");
  app.add_flag("--json", arguments.json, "Print JSON");
  auto* xml = app.add_flag("--xml", arguments.xml, "Print hwloc XML, which --load and hwloc's tools read");
  app.add_option("--svg", arguments.svg, "Write a drawing to this file (- for standard output)")->type_name("FILE");
  xml->excludes("--json");
}

void write_file(const std::string& path, const std::string& text) {
  if (path == "-") {
    std::fwrite(text.data(), 1, text.size(), stdout);
    return;
  }
  std::ofstream file(path, std::ios::binary);
  file << text << std::flush;
  if (!file) throw Error(Code::invalid_argument, system_error("--svg: cannot write " + path, errno).what());
}

Host chosen_host(const Arguments& arguments, std::string* xml) {
  if (arguments.load.empty()) return discover_host(xml);
  try {
    return load_host(arguments.load, xml);
  } catch (const Error& error) {  // whatever is wrong with the file, the argument named it
    throw Error(Code::invalid_argument, std::string("--load: ") + error.what());
  }
}

void show_host(const Arguments& arguments) {
  std::string xml;
  const Host host = chosen_host(arguments, &xml);
  if (!arguments.svg.empty()) write_file(arguments.svg, to_svg(host));
  if (arguments.json) std::fputs(host_json(host).c_str(), stdout);
  else if (arguments.xml) std::fputs(xml.c_str(), stdout);
  else if (arguments.svg.empty()) std::fputs(to_text(host).c_str(), stdout);
}

int run(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("Shows what a host has and which cores are allowed here.", "tutti-topo");
  declare(app, arguments);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : exit_arguments;
  }
  try {
    show_host(arguments);
  } catch (const Error& error) {
    fmt::print(stderr, "tutti-topo: {}\n", error.what());
    return error.code() == Code::invalid_argument ? exit_arguments : exit_failed;
  }
  return 0;
}

}  // namespace
}  // namespace tutti

int main(int argc, char** argv) { return tutti::run(argc, argv); }
