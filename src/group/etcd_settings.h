#pragma once

#include <functional>
#include <string>
#include <vector>

#include "group/http_client.h"

namespace distag {

// How to reach an etcd, and where in it a group meets.
struct EtcdSettings {
  std::vector<std::string> endpoints;  // "http://host:port", or https
  std::string prefix;                  // of all keys of the group: "/jobs/train"
  TlsFiles tls;
  std::string user;  // empty: none
  std::string password;
};

// Of "etcd://host:port[,host:port...]/prefix" and the environment:
//
//   DISTAG_ETCD_CACERT         a file of certificates (PEM); TLS is spoken where it is given, and not without
//   DISTAG_ETCD_CERT, _KEY     the certificate of this side and its key
//   DISTAG_ETCD_USER           a user of etcd, and
//   DISTAG_ETCD_PASSWORD_FILE  the file with its password, for this user of the machine alone (chmod 600)
//
// Throws INVALID_ARGUMENT for an address that is invalid, or has a user or a password in it, and for variables that do
// not fit each other; DENIED for a password that would travel in the clear, or whose file others may read.
EtcdSettings read_etcd_settings(const std::string& uri, const std::function<const char*(const char*)>& get_environment);

// The first way that `find_way` knows to a server, which it gets as "tcp://host:port". Empty: it knows none. A server
// for which it throws, as its name is not known now, is passed over.
std::string find_way_to_etcd(const std::string& uri, const std::function<std::string(const std::string&)>& find_way);

}  // namespace distag
