// A run that another thread ends: cancel IMAGES, which are many.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>
#include <vta.h>

int main(int argc, char **argv) {
  vta_session *session = nullptr;
  vta_options *options = vta_options_new();
  if (argc != 2 || vta_options_set(options, "threads", "1") != VTA_STATUS_OK) return 2;
  if (vta_open("demo", "sim", options, &session) != VTA_STATUS_OK) return 2;
  vta_options_free(options);
  vta_cancel(session);  // Nothing runs: the next run isn't touched.
  if (vta_set_images(session, 0, argv[1]) != VTA_STATUS_OK || vta_run(session) != VTA_STATUS_OK) return 2;
  const std::size_t all = vta_image_count(session);
  std::atomic<bool> done{false};
  vta_status status = VTA_STATUS_OK;
  std::thread runner([&] {
    status = vta_run(session);
    done = true;
  });
  while (!done) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    vta_cancel(session);
  }
  runner.join();
  if (status != VTA_STATUS_CANCELLED || vta_image_count(session) != 0) {
    std::fprintf(stderr, "status %d, %zu images\n", static_cast<int>(status), vta_image_count(session));
    return 1;
  }
  // It can be used again.
  if (vta_run(session) != VTA_STATUS_OK || vta_image_count(session) != all) return 3;
  vta_close(session);
  return 0;
}
