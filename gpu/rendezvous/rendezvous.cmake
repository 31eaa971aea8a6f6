# Meeting of the ranks: needs neither CUDA nor NCCL.
set(rendezvous
  refit-launch.c
  refit-rendezvous-exchange.c
  refit-rendezvous-hub.c
  refit-rendezvous-join.c
  refit-rendezvous-wire.c
  refit-rendezvous.c)
list(TRANSFORM rendezvous PREPEND rendezvous/)
add_library(refit-launch STATIC ${rendezvous})
set_target_properties(refit-launch PROPERTIES POSITION_INDEPENDENT_CODE ON)
target_link_libraries(refit-launch PUBLIC refit-model PkgConfig::GIO)
