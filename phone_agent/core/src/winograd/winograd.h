/* Winograd convolutions, called by conv/conv.c. They are a unit of their own. */
#pragma once
#include "units/unit.h"

#define winograd_forward FOR_ISA(winograd_forward)
#define winograd_backward_data FOR_ISA(winograd_backward_data)
#define winograd_backward_weights FOR_ISA(winograd_backward_weights)
#define winograd_workspace_forward FOR_ISA(winograd_workspace_forward)
#define winograd_workspace_backward_data FOR_ISA(winograd_workspace_backward_data)
#define winograd_workspace_backward_weights FOR_ISA(winograd_workspace_backward_weights)

void winograd_forward(worker *w, const conv_forward *op);
void winograd_backward_data(worker *w, const conv_backward_data *op);
void winograd_backward_weights(worker *w, const conv_backward_weights *op);
i64 winograd_workspace_forward(i32 threads, const conv_forward *op);
i64 winograd_workspace_backward_data(i32 threads, const conv_backward_data *op);
i64 winograd_workspace_backward_weights(i32 threads, const conv_backward_weights *op);
