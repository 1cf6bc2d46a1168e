"""What Hopper adds: clusters, mbarriers, TMA, warpgroups and their registers, launches that overlap."""
