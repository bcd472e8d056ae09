;; What a module may call before it is started. In _initialize it logs, which a
;; host allows, and then asks for the time, which it does not.
;;
;;   wat2wasm early.wat -o early.wasm      (wabt; the result is committed)
(module
  (import "env" "proxy_log" (func $log (param i32 i32 i32) (result i32)))
  (import "env" "proxy_get_current_time_nanoseconds" (func $now (param i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "early")
  (data (i32.const 16) "later")
  (func (export "proxy_abi_version_0_2_0"))
  (func (export "malloc") (param i32) (result i32) (i32.const 1024))
  (func (export "_initialize")
    (drop (call $log (i32.const 2) (i32.const 0) (i32.const 5)))
    (drop (call $now (i32.const 64)))
    (drop (call $log (i32.const 2) (i32.const 16) (i32.const 5))))
  (func (export "proxy_on_context_create") (param i32 i32)))
