// A reader for the part of XML that algorithm files use: elements, attributes, comments, declarations; no text, no
// entities but the five that stand for characters.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti {

struct XmlElement {
  std::string name;
  std::vector<std::pair<std::string, std::string>> attributes;
  std::vector<XmlElement> children;
  int line = 0;

  // Null where there is none.
  const std::string* attribute(std::string_view name) const;
};

// The root element. Throws Error(invalid_argument): "SOURCE: line 3: why".
XmlElement parse_xml(std::string_view text, std::string_view source);

}  // namespace tutti
