using Workerd = import "/workerd/workerd.capnp";

# The benchmark says where "store" is, and reads from the control descriptor which port
# was free.
const config :Workerd.Config = (
  services = [
    (name = "main", worker = .worker),
    (name = "store", disk = (writable = true)),
  ],
  sockets = [(name = "http", address = "127.0.0.1:0", http = (), service = "main")],
);

const worker :Workerd.Worker = (
  compatibilityDate = "2026-11-01",
  modules = [(name = "worker.js", esModule = embed "worker.js")],
  durableObjectNamespaces = [
    # As in dohost's sides, objects go only when they are ended.
    (className = "Subject", uniqueKey = "subject", enableSql = true, preventEviction = true),
  ],
  durableObjectStorage = (localDisk = "store"),
  bindings = [(name = "SUBJECT", durableObjectNamespace = "Subject")],
);
