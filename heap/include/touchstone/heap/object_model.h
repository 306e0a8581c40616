// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_HEAP_OBJECT_MODEL_H_
#define TOUCHSTONE_HEAP_OBJECT_MODEL_H_

#include <concepts>
#include <cstddef>
#include <cstdint>

namespace touchstone::heap {

/// Takes the slots of an object and does nothing with them: what trace() is checked against. The
/// visitors that the collector passes have the same members.
struct NullVisitor {
  /// The address of a reference: a word that holds null or the start of an object in this heap.
  void operator()(void* /*slot*/) const noexcept {}
  /// The same, but the reference keeps nothing alive: it becomes null when its object dies.
  void weak(void* /*slot*/) const noexcept {}
  /// A pair of references of which the second counts only while the object of the first is alive
  /// by other means. Both become null when that object dies. While the first is null the second is
  /// a plain reference.
  void ephemeron(void* /*key_slot*/, void* /*value_slot*/) const noexcept {}
};

/// What the collector has to know of the embedder's objects.
///
/// An object starts at a multiple of kAlignment and has a size that is one. Its first 8 bytes are
/// its *header*. The two lowest bits of the header belong to the collector and are 0 whenever the
/// embedder sees the object: 1 means that the rest of the word is the new address, 2 that the
/// object stays where it is during this collection. A pointer to a type descriptor will do as a
/// header, and so will bits (see object_header.h). A header is not 0 once the object is
/// initialised, which has to be so by the mutator's next safepoint.
///
/// References are plain 8-byte addresses of object starts, or null.
///
///     struct Model {
///       static constexpr std::size_t kAlignment = 8;      // Of objects: 8, 16, 32 or 64.
///       // Bytes of an object. `header` is its first word with the collector's bits clear; the
///       // word in memory may hold something else. Everything else in the object is as it was.
///       std::size_t size(const void* object, std::uint64_t header) const noexcept;
///       // Calls visit(&field) for each reference, visit.weak() and visit.ephemeron() likewise.
///       template <class Visitor>
///       void trace(void* object, std::uint64_t header, Visitor&& visit) const noexcept;
///       // Makes `size` bytes (a multiple of kAlignment, at least that) an object without
///       // references, of which size() tells the size again.
///       void write_filler(void* at, std::size_t size) const noexcept;
///       // Optional: as trace(), for the slots alone that lie in [begin, end). Worth having for
///       // arrays: a card in the middle of a large one is then scanned without the rest.
///       template <class Visitor>
///       void trace_range(void* object, std::uint64_t header, void* begin, void* end,
///                        Visitor&& visit) const noexcept;
///       // Optional: whether write_filler() made it. An ambiguous root that hits a filler then
///       pins
///       // nothing.
///       bool is_filler(const void* object, std::uint64_t header) const noexcept;
///     };
///
/// A model may have state, which Heap::create() is given and Heap::model() shows; it does not
/// change. All are called by several threads at once while mutators stand still. They must not
/// allocate in the heap, block, or throw.
template <typename Model>
concept ObjectModel =
    requires(const Model model, void* object, std::uint64_t header, std::size_t size,
             NullVisitor visitor) {
      { Model::kAlignment } -> std::convertible_to<std::size_t>;
      { model.size(object, header) } noexcept -> std::same_as<std::size_t>;
      { model.trace(object, header, visitor) } noexcept;
      { model.write_filler(object, size) } noexcept;
    } &&
    (Model::kAlignment == 8 || Model::kAlignment == 16 || Model::kAlignment == 32 ||
     Model::kAlignment == 64);

/// Whether a model can trace a part of an object.
template <typename Model>
concept RangeTracing =
    requires(const Model model, void* object, std::uint64_t header, NullVisitor visitor) {
      { model.trace_range(object, header, object, object, visitor) } noexcept;
    };

/// Whether a model tells, by traces_ranges() const noexcept, if its trace_range() can be used: for
/// those that know only when they run. Others with a trace_range() always can.
template <typename Model>
concept RangeTelling = RangeTracing<Model> && requires(const Model model) {
  { model.traces_ranges() } noexcept -> std::same_as<bool>;
};

/// Whether a model tells its fillers.
template <typename Model>
concept FillerTelling = requires(const Model model, const void* object, std::uint64_t header) {
  { model.is_filler(object, header) } noexcept -> std::same_as<bool>;
};

}  // namespace touchstone::heap

#endif  // TOUCHSTONE_HEAP_OBJECT_MODEL_H_
