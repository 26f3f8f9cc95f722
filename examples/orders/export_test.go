package orders

// Charged is the kind of operations that charge a customer.
var Charged = charged
