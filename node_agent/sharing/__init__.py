"""How the clients of one GPU share it: policy, window, fairness between slots, and conditions."""
