# A device for a UCX_IB=1 link where there is no card: FAKE_VERBS=1 leads libuct_ib's calls of
# libibverbs to that of verbs_fabric.h, which is there for processes that have GF_VERBS (a file's
# name), and lies in the object of driver and UCX. For tests alone.
FAKE_VERBS  ?=
VERBS_CALLS := stat access $(addprefix ibv_,get_device_list free_device_list fork_init open_device \
    close_device query_device query_port query_gid query_pkey query_qp get_async_event \
    ack_async_event alloc_pd dealloc_pd reg_mr_iova2 dereg_mr create_ah destroy_ah \
    create_comp_channel destroy_comp_channel create_cq destroy_cq get_cq_event ack_cq_events \
    create_srq destroy_srq create_qp destroy_qp modify_qp)
ifeq ($(FAKE_VERBS),1)
VERBS_OBJ := $(patsubst %.c,$(BUILD)/%.o,$(wildcard firmware-tests/ucx/verbs_*.c))
UCX_LIBS  := $(VERBS_OBJ) $(VERBS_CALLS:%=-Wl,--wrap=%) $(UCX_LIBS)
$(BUILD)/drivers/ucx/with_ucx.o: $(VERBS_OBJ)
endif
