// Runs guest.wasm in V8: node --no-liftoff v8.mjs guest.wasm FOLDER
// (optimised code from the start, as Envoy compiles it). Lines go through
// standard input and output. The monotonic clock is the process's CPU time.
import { readFileSync, readSync } from "node:fs";
import { WASI } from "node:wasi";

const [module, folder] = process.argv.slice(2);
const wasi = new WASI({ version: "preview1", args: ["guest"], env: {}, preopens: { "/": folder } });
const nap = new Int32Array(new SharedArrayBuffer(4));
let memory;
const imports = {
  ...wasi.wasiImport,
  clock_time_get(id, precision, at) {
    if (id !== 1) return wasi.wasiImport.clock_time_get(id, precision, at);
    const { user, system } = process.cpuUsage();
    new DataView(memory.buffer).setBigUint64(at, BigInt(user + system) * 1000n, true);
    return 0;
  },
  // Node's own gives up on a pipe that is empty for the moment.
  fd_read(fd, vectors, count, read) {
    if (fd !== 0) return wasi.wasiImport.fd_read(fd, vectors, count, read);
    const view = new DataView(memory.buffer);
    const bytes = new Uint8Array(memory.buffer, view.getUint32(vectors, true), view.getUint32(vectors + 4, true));
    for (;;) {
      try {
        view.setUint32(read, readSync(0, bytes), true);
        return 0;
      } catch (error) {
        if (error.code !== "EAGAIN") throw error;
        Atomics.wait(nap, 0, 0, 2);
      }
    }
  },
};
const { instance } = await WebAssembly.instantiate(readFileSync(module), { wasi_snapshot_preview1: imports });
memory = instance.exports.memory;
process.exit(wasi.start(instance));
