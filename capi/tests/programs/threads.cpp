// vta.h from C++: sessions in threads at the same time, and one that threads share, give the same values.
#include <atomic>
#include <cstdio>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>
#include <vta.h>

namespace {

struct Close {
  void operator()(vta_session *session) const { vta_close(session); }
};
using Session = std::unique_ptr<vta_session, Close>;

void good(vta_status status) {
  if (status != VTA_STATUS_OK) throw std::runtime_error(vta_last_error());
}

Session open() {
  vta_session *session = nullptr;
  good(vta_open("demo", "sim", nullptr, &session));
  return Session(session);
}

std::vector<float> scores(vta_session *session, float grey) {
  std::vector<float> image(vta_tensor_len(vta_input(session, 0)), grey);
  good(vta_set_input(session, 0, VTA_TYPE_F32, image.data(), image.size()));
  good(vta_run(session));
  std::vector<float> found(vta_tensor_len(vta_output(session, 0)));
  good(vta_read_output(session, 0, VTA_TYPE_F32, found.data(), found.size()));
  return found;
}

}  // namespace

int main() {
  const Session shared = open();
  std::mutex lock;
  bool wrong[4] = {};
  std::atomic<int> compared{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; i++) {
    threads.emplace_back([&, i] {
      const Session own = open();
      for (int round = 0; round < 5; round++) {
        const float grey = 0.25f * static_cast<float>(i) - 0.1f * static_cast<float>(round);
        const std::vector<float> alone = scores(own.get(), grey);
        const std::lock_guard<std::mutex> one(lock);
        wrong[i] |= scores(shared.get(), grey) != alone;
      }
      // Without the lock values may be another thread's, but every call does what it says. Nobody begins before all
      // have compared theirs.
      compared++;
      while (compared < 4) std::this_thread::yield();
      for (int round = 0; round < 5; round++) scores(shared.get(), 0.5f);
      // Failures are the thread's own.
      const std::string name = "none" + std::to_string(i);
      size_t index = 0;
      wrong[i] |= vta_find_input(own.get(), name.c_str(), &index) != VTA_STATUS_USAGE;
      std::this_thread::yield();
      wrong[i] |= std::string(vta_last_error()).find("'" + name + "'") == std::string::npos;
    });
  }
  for (std::thread &thread : threads) thread.join();
  for (int i = 0; i < 4; i++)
    if (wrong[i]) std::fprintf(stderr, "thread %d: wrong\n", i);
  return wrong[0] || wrong[1] || wrong[2] || wrong[3];
}
