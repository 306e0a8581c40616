// SPDX-License-Identifier: GPL-2.0-only
#include "scan.h"

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "machine.h"
#include "report.h"
#include "touch.h"

namespace lab {
namespace {

constexpr std::string_view kScans[] = {"load", "ldxr", "ldadd"};
constexpr size_t kScannedPages = 64;

// One access in every `stride` bytes: of memory that was never written, a huge page or 2 MiB each.
void scan_private(const Touch& touch, bool thp) {
  const size_t stride = thp ? pmd_size() : size_t{2} << 20;
  const size_t accesses = thp ? 4 : kScannedPages;
  const LoopPage page(touch, LoopPage::Text::kNormal);
  Mapping region(accesses * stride, stride, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
  madvise(region.begin(), region.size(), thp ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  const int64_t before = minor_faults_of_thread();
  page.loop()(region.begin(), region.end(), stride, 0, 0);
  const int64_t faults = minor_faults_of_thread() - before;
  Line("scan")
      .add("touch", touch.name)
      .add("memory", thp ? "anon-thp" : "anon")
      .add("accesses", uint64_t{accesses})
      .add("faults", faults)
      .add("grown_kb", resident_kb(region.begin(), region.end()))
      .print();
}

// Every page of a file that is one hole.
void scan_shared_file(const Touch& touch, const std::string& folder) {
  const std::string path = folder + "/sparse";
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  const size_t bytes = kScannedPages * page_size();
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
    report_failure("the sparse file could not be made");
    return;
  }
  const LoopPage page(touch, LoopPage::Text::kNormal);
  int64_t faults = 0, dirty = 0;
  {
    Mapping region(bytes, 0, PROT_READ | PROT_WRITE, MAP_SHARED, fd);
    const int64_t before = minor_faults_of_thread() + major_faults_of_thread();
    page.loop()(region.begin(), region.end(), page_size(), 0, 0);
    faults = minor_faults_of_thread() + major_faults_of_thread() - before;
    dirty = dirty_kb(region.begin(), region.end());
  }
  struct stat status = {};
  if (fsync(fd) != 0 || fstat(fd, &status) != 0) report_failure("the sparse file is lost");
  close(fd);
  unlink(path.c_str());
  Line("scan")
      .add("touch", touch.name)
      .add("memory", "shared sparse file")
      .add("accesses", uint64_t{kScannedPages})
      .add("faults", faults)
      .add("dirty_kb", dirty)
      .add("disk_kb", int64_t{status.st_blocks} / 2)
      .print();
}

// Puts the image onto the disk in memory and mounts it; "" and a reason when that cannot be.
std::string mount_image(std::string& why) {
  const int image = open("/ext2.img", O_RDONLY | O_CLOEXEC);
  if (image < 0) {
    why = "no ext2 image was brought along";
    return {};
  }
  const int disk = open("/dev/ram0", O_WRONLY | O_CLOEXEC);
  if (disk < 0) {
    close(image);
    why = "this kernel has no disk in memory";
    return {};
  }
  std::vector<char> block(size_t{1} << 16);
  for (ssize_t got; (got = read(image, block.data(), block.size())) > 0;) {
    if (write(disk, block.data(), static_cast<size_t>(got)) != got) why = strerror(errno);
  }
  close(image);
  close(disk);
  const char* const at = "/tmp/ext2";
  mkdir(at, 0755);
  if (why.empty() && mount("/dev/ram0", at, "ext2", 0, nullptr) != 0) why = strerror(errno);
  return why.empty() ? at : "";
}

}  // namespace

void run_scans() {
  settle();
  for (const std::string_view name : kScans) {
    scan_private(touch_named(name), false);
    if (pmd_size() != 0) scan_private(touch_named(name), true);
  }
  std::string why;
  const std::string folder = mount_image(why);
  if (folder.empty()) {
    Line("skipped").add("what", "scans of a shared sparse file").add("why", why).print();
    return;
  }
  for (const std::string_view name : kScans) scan_shared_file(touch_named(name), folder);
  umount(folder.c_str());
}

}  // namespace lab
