#pragma once

#include <functional>
#include <string>
#include <vector>

#include "group/http_client.h"

namespace distag {

// How to reach an etcd, and the keys under which the group meets.
struct EtcdSettings {
  std::vector<std::string> endpoints;  // "http://host:port", or https
  std::string prefix;                  // prefix of the group's keys: "/jobs/train"
  TlsFiles tls;
  std::string user;  // empty: none
  std::string password;
};

// Reads "etcd://host:port[,host:port...]/prefix" and the environment:
//
//   DISTAG_ETCD_CACERT         a file of certificates (PEM); TLS is used if and only if it is set
//   DISTAG_ETCD_CERT, _KEY     the certificate of this side and its key
//   DISTAG_ETCD_USER           a user of etcd, and
//   DISTAG_ETCD_PASSWORD_FILE  the file with its password, readable only by the user of this process (chmod 600)
//
// Throws INVALID_ARGUMENT for an address that is invalid or contains a user or a password, and for variables that
// conflict; DENIED for a password that would travel unencrypted, or whose file others may read.
EtcdSettings read_etcd_settings(const std::string& uri, const std::function<const char*(const char*)>& get_environment);

// The first path to a server that `find_way` finds; it gets each server as "tcp://host:port". Empty: no path is known.
// A server for which `find_way` throws, because its name is not known now, is skipped.
std::string find_way_to_etcd(const std::string& uri, const std::function<std::string(const std::string&)>& find_way);

}  // namespace distag
