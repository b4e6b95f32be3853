// PrefixTree: chains of block keys as a radix tree with compressed paths. Each node carries a label, the run of
// keys between two branchings, and never has exactly one child (the root may).
//
//   four stored chains                              the tree
//
//     s0 s1 s2 a3 a4                                root
//     s0 s1 s2 b3                                    ├── [s0 s1 s2]            fan-out 3
//     s0 s1 s2 b3 c4            ==>                  │     ├── [a3 a4]         leaf
//     s0 s1 s2 d3                                    │     ├── [b3 c4]         leaf; its first key was an end, too
//     x0                                             │     └── [d3]            leaf
//                                                    └── [x0]                  leaf
//
//   a chain that leaves a label in its middle splits the node; a node left with one child is merged into it:
//
//     [s0 s1 s2]   insert s0 s1 e2    [s0 s1]          drop e2      [s0 s1 s2]
//      ├─ ...     ----------------->   ├── [s2]       --------->     ├─ ...
//                                      │     ├─ ...
//                                      └── [e2]
//
// A slot says whether an object serves the prefix that ends in it. Slots without one (holes) stand only where a
// longer prefix is served: a leaf's label always ends in a served slot. The root's label is empty.
//
// A child is found by hash of (parent, first key of its label), so a step costs one look-up whatever the fan-out,
// and chains that are no true hash chains (a damaged listing) are merely different paths. Both split and merge move
// the upper part and keep the lower node where it is, so children never need to learn of a new parent, and the cost
// is that of one label.
//
// Leaves are ordered by the last use of their ends. Stamps never increase downwards (a use touches the whole path),
// hence the first of that order is the least recently used slot of the whole tree.
//
// Owned by PrefixIndex; not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "bus/prefix/prefix_slot.h"

namespace moonpool::bus {

struct PrefixNode {
  std::vector<std::unique_ptr<PrefixSlot>> label;
  PrefixNode* parent = nullptr;  // null: the root
  PrefixNode* first_child = nullptr;
  PrefixNode* previous_sibling = nullptr;
  PrefixNode* next_sibling = nullptr;
  size_t leaves = 0;  // below and including this node: its fan-out

  bool IsLeaf() const { return first_child == nullptr && parent != nullptr; }
};

class PrefixTree {
 public:
  // A place in the tree: the first `in_label` slots of node's label, and everything above it, are the first
  // `blocks` keys of some chain. At the root both are 0.
  struct Place {
    PrefixNode* node = nullptr;
    size_t in_label = 0;
    size_t blocks = 0;
  };

  PrefixTree() = default;
  PrefixTree(const PrefixTree&) = delete;
  PrefixTree& operator=(const PrefixTree&) = delete;

  // As far as the tree knows the chain, served or not.
  Place Walk(std::span<const Digest256> chain);
  // Up from `place` to the next slot towards the root that is served, or to the root.
  static Place LastServed(Place place);
  // Number of leaves strictly below the place.
  static size_t FanOut(const Place& place);
  static PrefixSlot& SlotAt(const Place& place) { return *place.node->label[place.in_label - 1]; }
  // One block towards the root. The place must not be the root.
  static Place Up(Place place);

  // Marks the whole path to `place` as used. `stamp` must be later than every stamp given before.
  void Touch(const Place& place, TimePoint stamp);
  // Adds `rest` below `place`, which must be as far as the tree knows that chain; answers the new end. The new slots
  // are holes; the caller makes the last one served before anything else.
  Place Extend(Place place, std::span<const Digest256> rest, TimePoint stamp);
  // Restores the tree's shape after slots of this node became holes. The node may be gone afterwards.
  void Prune(PrefixNode* node);
  // The least recently used slot, always a served leaf's end; null if the tree is empty.
  PrefixSlot* Oldest();
  void Clear();

  size_t slots() const { return slots_; }
  size_t nodes() const { return nodes_.size(); }
  // Memory held, see allocation_cost.h.
  uint64_t bytes() const;
  // What every slot costs at least.
  static uint64_t BytesPerSlot();
  // Empty if the tree has the shape described above and every count is right.
  std::string CheckInvariants() const;

 private:
  struct Edge {
    const PrefixNode* parent;
    Digest256 first_key;
    bool operator==(const Edge&) const = default;
  };
  struct EdgeHash {
    size_t operator()(const Edge& edge) const noexcept;
  };

  static Edge EdgeTo(const PrefixNode& node);
  PrefixNode* AddLeaf(PrefixNode* parent, std::span<const Digest256> keys, TimePoint stamp);
  void Append(PrefixNode* node, std::span<const Digest256> keys, TimePoint stamp);
  PrefixNode* Split(PrefixNode* node, size_t at);
  void Merge(PrefixNode* upper);
  void RemoveLeaf(PrefixNode* node, const Edge& edge);
  void Link(PrefixNode* node, PrefixNode* parent);
  void Unlink(PrefixNode* node);
  void ListLeaf(PrefixNode* node);
  void UnlistLeaf(PrefixNode* node);
  std::string CheckNode(const PrefixNode& node) const;

  PrefixNode root_;
  std::unordered_map<Edge, PrefixNode, EdgeHash> nodes_;  // owns all nodes but the root; their addresses are stable
  std::map<TimePoint, PrefixNode*> leaves_by_use_;        // by the last use of the leaf's end
  size_t slots_ = 0;
  uint64_t label_bytes_ = 0;
};

}  // namespace moonpool::bus
