// A recursive-descent reader of XML elements.
#include "tools/schedule/xml.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.h"

namespace tutti {
namespace {

constexpr int depth_max = 32;
constexpr std::array<std::pair<std::string_view, char>, 5> entities = {
    {{"&lt;", '<'}, {"&gt;", '>'}, {"&amp;", '&'}, {"&quot;", '"'}, {"&apos;", '\''}}};

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
         c == ':' || c == '.';
}

class Reader {
 public:
  Reader(std::string_view text, std::string_view source) : text_(text), source_(source) {}

  XmlElement document() {
    skip();
    XmlElement root = element(0);
    skip();
    if (at_ < text_.size()) refuse("something follows the last element");
    return root;
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(Code::invalid_argument, fmt::format("{}: line {}: {}", source_, line(), why));
  }
  int line() const {
    const std::string_view before = text_.substr(0, at_);
    return 1 + int(std::count(before.begin(), before.end(), '\n'));
  }

  bool take(std::string_view token) {
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }
  void expect(std::string_view token) {
    if (!take(token)) refuse(fmt::format("'{}' is expected", token));
  }
  void skip_past(std::string_view end, std::string_view what) {
    const size_t found = text_.find(end, at_);
    if (found == std::string_view::npos) refuse(fmt::format("{} does not end", what));
    at_ = found + end.size();
  }
  void skip_spaces() {
    while (at_ < text_.size() && is_space(text_[at_])) ++at_;
  }
  // Spaces, comments, declarations.
  void skip() {
    for (;;) {
      skip_spaces();
      if (take("<!--")) skip_past("-->", "a comment");
      else if (take("<?")) skip_past("?>", "a declaration");
      else return;
    }
  }

  std::string name() {
    const size_t first = at_;
    while (at_ < text_.size() && is_name(text_[at_])) ++at_;
    if (at_ == first) refuse("a name is expected");
    return std::string(text_.substr(first, at_ - first));
  }

  std::string value() {
    const char quote = at_ < text_.size() ? text_[at_] : ' ';
    if (quote != '"' && quote != '\'') refuse("a value in quotes is expected");
    const size_t first = ++at_;
    skip_past(std::string_view(&quote, 1), "a value");
    std::string result;
    const std::string_view raw = text_.substr(first, at_ - 1 - first);
    for (size_t i = 0; i < raw.size();) {
      const auto entity = std::find_if(entities.begin(), entities.end(),
                                       [&](const auto& e) { return raw.substr(i).starts_with(e.first); });
      result += entity == entities.end() ? raw[i] : entity->second;
      i += entity == entities.end() ? 1 : entity->first.size();
    }
    return result;
  }

  XmlElement element(int depth) {
    if (depth == depth_max) refuse(fmt::format("elements are nested more than {} deep", depth_max));
    XmlElement result;
    result.line = line();
    expect("<");
    result.name = name();
    for (;;) {
      skip_spaces();
      if (take("/>")) return result;
      if (take(">")) break;
      std::string key = name();
      skip_spaces();
      expect("=");
      skip_spaces();
      if (result.attribute(key) != nullptr) refuse(fmt::format("'{}' is given twice", key));
      result.attributes.emplace_back(std::move(key), value());
    }
    for (skip(); !take("</"); skip()) {
      if (at_ == text_.size()) refuse(fmt::format("<{}> of line {} does not end", result.name, result.line));
      result.children.push_back(element(depth + 1));
    }
    const std::string end = name();
    if (end != result.name) refuse(fmt::format("</{}> ends <{}> of line {}", end, result.name, result.line));
    skip_spaces();
    expect(">");
    return result;
  }

  std::string_view text_, source_;
  size_t at_ = 0;
};

}  // namespace

const std::string* XmlElement::attribute(std::string_view wanted) const {
  for (const auto& [key, value] : attributes)
    if (key == wanted) return &value;
  return nullptr;
}

XmlElement parse_xml(std::string_view text, std::string_view source) { return Reader(text, source).document(); }

}  // namespace tutti
