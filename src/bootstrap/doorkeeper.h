// Lets in through one listening socket only who proves the job's key; a crowd of strangers does no harm.
#pragma once

#include <poll.h>

#include <list>
#include <string>
#include <vector>

#include "base/log.h"
#include "bootstrap/handshake.h"

namespace tutti {

// Connections that have not proven the key; more wait in the kernel's queue.
inline constexpr size_t pending_max = 64;

class Doorkeeper {
 public:
  // Someone who has proven the key.
  struct Guest {
    Fd fd;               // nothing after the hello has been read
    Hello hello;         // holds only where versions agree
    uint32_t version = 0;
    std::string address;
  };

  // interface_names: connections that come in through another interface are refused.
  Doorkeeper(Fd listener, const Secret& secret, const std::string& interface_names, const Log& log);

  // Appends what to poll for.
  void add_poll_fds(std::vector<pollfd>& fds) const;
  // Until when it may sleep.
  TimeNs wake_ns(TimeNs now) const;
  // Moves every handshake on, without blocking; returns who is in.
  std::vector<Guest> serve(TimeNs now);

  // errno of the latest accept that failed for want of descriptors or memory; 0: none.
  int accept_error() const noexcept { return accept_error_; }
  // Whether somebody may take a connection for made that has not been let in yet.
  bool owes_entry() const noexcept;
  // No new connections; those under way end.
  void close_listener() noexcept { listener_.reset(); }
  uint16_t port() const;

 private:
  bool accepting(TimeNs now) const;
  void accept_waiting(TimeNs now);
  bool make_room(TimeNs now);

  System* const system_;
  Fd listener_;
  Secret secret_;
  std::vector<JobId::Address> allowed_;  // local addresses; empty: all
  const Log& log_;
  std::list<Handshake> pending_;         // oldest first
  int accept_error_ = 0;
  TimeNs paused_until_ns_ = 0;
};

}  // namespace tutti
