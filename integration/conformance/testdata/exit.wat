;; A module that exits. Compilers put an unreachable instruction behind a call of
;; proc_exit; this one goes on, to show whether the host comes back.
;;
;;   wat2wasm exit.wat -o exit.wasm      (wabt; the result is committed)
(module
  (import "env" "proxy_log" (func $log (param i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "before")
  (data (i32.const 16) "after")
  (func (export "proxy_abi_version_0_2_0"))
  (func (export "malloc") (param i32) (result i32) (i32.const 1024))
  (func (export "proxy_on_context_create") (param i32 i32))
  (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
    (drop (call $log (i32.const 2) (i32.const 0) (i32.const 6)))
    (call $exit (i32.const 3))
    (drop (call $log (i32.const 2) (i32.const 16) (i32.const 5)))
    (i32.const 0))
  (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
    (call $exit (i32.const 3))
    (unreachable)))
