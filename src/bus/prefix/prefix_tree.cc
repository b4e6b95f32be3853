#include "bus/prefix/prefix_tree.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "bus/prefix/allocation_cost.h"

namespace moonpool::bus {
namespace {

uint64_t LabelCost(const PrefixNode& node) { return AllocationCost(node.label.capacity() * sizeof(void*)); }

}  // namespace

size_t PrefixTree::EdgeHash::operator()(const Edge& edge) const noexcept {
  // Keys are hashes already; the parent only has to tell equal keys below different parents apart.
  return std::hash<Digest256>()(edge.first_key) ^ (reinterpret_cast<uintptr_t>(edge.parent) >> 4);
}

PrefixTree::Edge PrefixTree::EdgeTo(const PrefixNode& node) { return {node.parent, node.label.front()->key}; }

uint64_t PrefixTree::BytesPerSlot() { return AllocationCost(sizeof(PrefixSlot)) + sizeof(void*); }

uint64_t PrefixTree::bytes() const {
  constexpr uint64_t kNode = AllocationCost(sizeof(decltype(nodes_)::value_type) + sizeof(void*)) + kBucketCost;
  // A red-black tree's node has four words before its value.
  constexpr uint64_t kListed = AllocationCost(4 * sizeof(void*) + sizeof(decltype(leaves_by_use_)::value_type));
  return slots_ * AllocationCost(sizeof(PrefixSlot)) + label_bytes_ + nodes_.size() * kNode +
         leaves_by_use_.size() * kListed;
}

PrefixTree::Place PrefixTree::Walk(std::span<const Digest256> chain) {
  Place place{.node = &root_};
  while (place.blocks < chain.size()) {
    const auto child = nodes_.find(Edge{place.node, chain[place.blocks]});
    if (child == nodes_.end()) break;
    const auto& label = child->second.label;
    const size_t comparable = std::min(label.size(), chain.size() - place.blocks);
    size_t same = 1;
    while (same < comparable && label[same]->key == chain[place.blocks + same]) ++same;
    place = {.node = &child->second, .in_label = same, .blocks = place.blocks + same};
    if (same < label.size()) break;
  }
  return place;
}

PrefixTree::Place PrefixTree::Up(Place place) {
  --place.blocks;
  if (--place.in_label == 0) {
    place.node = place.node->parent;
    place.in_label = place.node->label.size();
  }
  return place;
}

PrefixTree::Place PrefixTree::LastServed(Place place) {
  while (place.blocks > 0 && SlotAt(place).object == nullptr) place = Up(place);
  return place;
}

size_t PrefixTree::FanOut(const Place& place) {
  const bool ends_a_leaf = place.node->IsLeaf() && place.in_label == place.node->label.size();
  return ends_a_leaf ? 0 : place.node->leaves;
}

void PrefixTree::Touch(const Place& place, TimePoint stamp) {
  PrefixNode* node = place.node;
  const bool moves_leaf = node->IsLeaf() && place.in_label == node->label.size();
  if (moves_leaf) UnlistLeaf(node);
  for (size_t i = 0; i < place.in_label; ++i) node->label[i]->last_use = stamp;
  if (moves_leaf) ListLeaf(node);
  for (node = node->parent; node != nullptr; node = node->parent) {
    for (const auto& slot : node->label) slot->last_use = stamp;
  }
}

PrefixTree::Place PrefixTree::Extend(Place place, std::span<const Digest256> rest, TimePoint stamp) {
  MP_CHECK(!rest.empty());
  PrefixNode* node = place.node;
  if (place.in_label < node->label.size()) node = Split(node, place.in_label);
  if (node->IsLeaf()) {
    UnlistLeaf(node);
    Append(node, rest, stamp);
    ListLeaf(node);
  } else {
    node = AddLeaf(node, rest, stamp);
  }
  return {.node = node, .in_label = node->label.size(), .blocks = place.blocks + rest.size()};
}

void PrefixTree::Append(PrefixNode* node, std::span<const Digest256> keys, TimePoint stamp) {
  label_bytes_ -= LabelCost(*node);
  for (const Digest256& key : keys) {
    auto slot = std::make_unique<PrefixSlot>();
    slot->key = key;
    slot->last_use = stamp;
    slot->node = node;
    node->label.push_back(std::move(slot));
  }
  label_bytes_ += LabelCost(*node);
  slots_ += keys.size();
}

PrefixNode* PrefixTree::AddLeaf(PrefixNode* parent, std::span<const Digest256> keys, TimePoint stamp) {
  const auto [entry, is_new] = nodes_.try_emplace(Edge{parent, keys.front()});
  MP_CHECK(is_new);
  PrefixNode* leaf = &entry->second;
  leaf->label.reserve(keys.size());
  label_bytes_ += LabelCost(*leaf);
  Append(leaf, keys, stamp);
  Link(leaf, parent);
  leaf->leaves = 1;
  for (PrefixNode* above = parent; above != nullptr; above = above->parent) ++above->leaves;
  ListLeaf(leaf);
  return leaf;
}

PrefixNode* PrefixTree::Split(PrefixNode* node, size_t at) {
  // The upper half takes the node's place; the node itself keeps the lower half, its children and its leaf stamp.
  label_bytes_ -= LabelCost(*node);
  auto handle = nodes_.extract(EdgeTo(*node));
  PrefixNode* upper = &nodes_.try_emplace(handle.key()).first->second;
  PrefixNode* parent = node->parent;
  Unlink(node);
  Link(upper, parent);
  Link(node, upper);
  upper->leaves = node->leaves;

  const auto middle = std::next(node->label.begin(), static_cast<std::ptrdiff_t>(at));
  upper->label.assign(std::make_move_iterator(node->label.begin()), std::make_move_iterator(middle));
  for (const auto& slot : upper->label) slot->node = upper;
  node->label = std::vector<std::unique_ptr<PrefixSlot>>(std::make_move_iterator(middle),
                                                         std::make_move_iterator(node->label.end()));

  handle.key() = EdgeTo(*node);
  nodes_.insert(std::move(handle));
  label_bytes_ += LabelCost(*node) + LabelCost(*upper);
  return upper;
}

void PrefixTree::Merge(PrefixNode* upper) {
  PrefixNode* node = upper->first_child;
  label_bytes_ -= LabelCost(*node) + LabelCost(*upper);
  auto handle = nodes_.extract(EdgeTo(*node));
  auto upper_handle = nodes_.extract(EdgeTo(*upper));
  PrefixNode* parent = upper->parent;
  Unlink(node);
  Unlink(upper);
  Link(node, parent);

  std::vector<std::unique_ptr<PrefixSlot>> joined;
  joined.reserve(upper->label.size() + node->label.size());
  for (auto& slot : upper->label) {
    slot->node = node;
    joined.push_back(std::move(slot));
  }
  std::move(node->label.begin(), node->label.end(), std::back_inserter(joined));
  node->label = std::move(joined);

  handle.key() = upper_handle.key();
  nodes_.insert(std::move(handle));
  label_bytes_ += LabelCost(*node);
}

void PrefixTree::Prune(PrefixNode* node) {
  if (!node->IsLeaf() || node->label.back()->object != nullptr) return;
  const Edge edge = EdgeTo(*node);
  UnlistLeaf(node);
  label_bytes_ -= LabelCost(*node);
  while (!node->label.empty() && node->label.back()->object == nullptr) {
    node->label.pop_back();
    --slots_;
  }
  if (node->label.empty()) {
    RemoveLeaf(node, edge);
    return;
  }
  if (node->label.size() * 2 < node->label.capacity()) node->label.shrink_to_fit();
  label_bytes_ += LabelCost(*node);
  ListLeaf(node);
}

void PrefixTree::RemoveLeaf(PrefixNode* node, const Edge& edge) {
  PrefixNode* parent = node->parent;
  for (PrefixNode* above = parent; above != nullptr; above = above->parent) --above->leaves;
  Unlink(node);
  nodes_.erase(edge);
  const bool only_child = parent->first_child != nullptr && parent->first_child->next_sibling == nullptr;
  if (only_child && parent != &root_) Merge(parent);
}

PrefixSlot* PrefixTree::Oldest() {
  return leaves_by_use_.empty() ? nullptr : leaves_by_use_.begin()->second->label.back().get();
}

void PrefixTree::Clear() {
  nodes_.clear();
  leaves_by_use_.clear();
  root_ = PrefixNode();
  slots_ = 0;
  label_bytes_ = 0;
}

void PrefixTree::Link(PrefixNode* node, PrefixNode* parent) {
  node->parent = parent;
  node->previous_sibling = nullptr;
  node->next_sibling = parent->first_child;
  if (parent->first_child != nullptr) parent->first_child->previous_sibling = node;
  parent->first_child = node;
}

void PrefixTree::Unlink(PrefixNode* node) {
  (node->previous_sibling == nullptr ? node->parent->first_child : node->previous_sibling->next_sibling) =
      node->next_sibling;
  if (node->next_sibling != nullptr) node->next_sibling->previous_sibling = node->previous_sibling;
}

void PrefixTree::ListLeaf(PrefixNode* node) {
  // Two leaves never end in one stamp: a stamp marks one path, and a path has one end.
  MP_CHECK(leaves_by_use_.emplace(node->label.back()->last_use, node).second);
}

void PrefixTree::UnlistLeaf(PrefixNode* node) { MP_CHECK(leaves_by_use_.erase(node->label.back()->last_use) == 1); }

std::string PrefixTree::CheckInvariants() const {
  size_t slots = 0;
  size_t leaves = 0;
  uint64_t label_bytes = 0;
  for (const auto& [edge, node] : nodes_) {
    if (std::string problem = CheckNode(node); !problem.empty()) return problem;
    if (edge != EdgeTo(node)) return "a node is filed under another edge";
    slots += node.label.size();
    label_bytes += LabelCost(node);
    if (node.IsLeaf()) ++leaves;
  }
  if (slots != slots_) return "the number of slots is wrong";
  if (label_bytes != label_bytes_) return "the labels' bytes are wrong";
  if (leaves != root_.leaves || leaves != leaves_by_use_.size()) return "the number of leaves is wrong";
  if (!root_.label.empty()) return "the root has a label";
  return "";
}

std::string PrefixTree::CheckNode(const PrefixNode& node) const {
  if (node.label.empty()) return "a node has no label";
  size_t children = 0;
  size_t leaves = 0;
  for (const PrefixNode* child = node.first_child; child != nullptr; child = child->next_sibling) {
    if (child->parent != &node) return "a child has another parent";
    ++children;
    leaves += child->leaves;
  }
  if (children == 1) return "a node has a single child";
  if (node.leaves != (children == 0 ? 1 : leaves)) return "a fan-out is wrong";
  const auto* above = node.parent->label.empty() ? nullptr : node.parent->label.back().get();
  for (const auto& slot : node.label) {
    if (slot->node != &node) return "a slot names another node";
    if (above != nullptr && above->last_use < slot->last_use) return "a prefix is older than its continuation";
    above = slot.get();
  }
  if (children == 0) {
    if (node.label.back()->object == nullptr) return "a leaf ends in a hole";
    const auto listed = leaves_by_use_.find(node.label.back()->last_use);
    if (listed == leaves_by_use_.end() || listed->second != &node) return "a leaf is not listed by its use";
  }
  return "";
}

}  // namespace moonpool::bus
